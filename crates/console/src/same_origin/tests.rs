use super::*;

fn same(headers: &[(&'static str, &'static str)]) -> bool {
    let headers = headers.iter();
    let headers = headers.map(|(name, value)| {
        let name = axum::http::HeaderName::from_static(name);
        (name, axum::http::HeaderValue::from_static(value))
    });
    let mut all = HeaderMap::new();
    for (name, value) in headers {
        all.append(name, value);
    }
    is_same_origin(&all, &Uri::from_static("/api/break"))
}

#[test]
fn only_the_page_itself_is_of_the_same_origin() {
    const HOST: (&str, &str) = ("host", "locks.example:8080");
    assert!(same(&[HOST, ("sec-fetch-site", "same-origin")]));
    assert!(same(&[HOST, ("origin", "http://locks.example:8080")]));
    assert!(same(&[HOST, ("origin", "https://LOCKS.example:8080")]));
    for refused in [
        &[HOST][..],
        &[("origin", "http://locks.example:8080")],
        &[HOST, ("origin", "null")],
        &[HOST, ("origin", "http://locks.example")],
        &[HOST, ("origin", "http://locks.example:8080.evil.example")],
        &[HOST, ("origin", "http://evil.example")],
        &[HOST, ("origin", "file://locks.example:8080")],
        &[HOST, ("sec-fetch-site", "cross-site")],
        &[HOST, ("sec-fetch-site", "same-site")],
        &[HOST, ("sec-fetch-site", "none")],
        &[
            HOST,
            ("sec-fetch-site", "cross-site"),
            ("origin", "http://locks.example:8080"),
        ],
        &[
            HOST,
            ("sec-fetch-site", "same-origin"),
            ("sec-fetch-site", "cross-site"),
        ],
        &[
            HOST,
            ("origin", "http://locks.example:8080"),
            ("origin", "http://evil.example"),
        ],
    ] {
        assert!(!same(refused), "{refused:?}");
    }
}

#[test]
fn http_2_has_its_host_in_the_address() {
    let mut headers = HeaderMap::new();
    headers.insert("origin", "https://locks.example".parse().unwrap());
    let uri = Uri::from_static("https://locks.example/_locks/api/break");
    assert!(is_same_origin(&headers, &uri));
}
