//! Checks that a request comes from the page itself.

use axum::http::{HeaderMap, Uri, header};

/// Returns `false` for a request that a page of another origin may have sent, and for a request without its origin.
///
/// A browser sets `Sec-Fetch-Site` itself, and no script can: if the header is present, it decides. Older browsers, and
/// addresses without TLS, send `Origin` only: its host and port must be those of the request.
pub(super) fn is_same_origin(headers: &HeaderMap, uri: &Uri) -> bool {
    let mut sites = headers.get_all("sec-fetch-site").iter();
    if let Some(site) = sites.next() {
        return site == "same-origin" && sites.next().is_none();
    }
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let (Some(origin), None) = (origins.next(), origins.next()) else {
        return false;
    };
    let Ok(origin) = origin.to_str() else {
        return false;
    };
    let scheme = ["https://", "http://"];
    let origin = scheme.iter().find_map(|scheme| origin.strip_prefix(scheme));
    match (origin, host(headers, uri)) {
        (Some(origin), Some(host)) => origin.eq_ignore_ascii_case(host),
        _ => false,
    }
}

/// The host of the request: `Host`, or the authority of HTTP/2.
fn host<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Option<&'a str> {
    let host = headers.get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok());
    host.or_else(|| uri.authority().map(|authority| authority.as_str()))
}

#[cfg(test)]
mod tests {
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
}
