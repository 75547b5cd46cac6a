//! The keys of requests: spellings, routes, and hostile input.

mod defaults;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::routing::{any, get};
use http::request::Parts;
use http::{HeaderValue, Request, StatusCode};
use tower_distributed_lock::key::{self, KeyError, KeyExtractor, LockKey};
use tower_distributed_lock::{DistributedLockLayer, LockHandle, LockMode, OnMissing, Rejection};

use super::{describe, locking, orders, problem, put, request, send, settle, slow, text};

fn exclusive() -> DistributedLockLayer {
    locking().2.mode(LockMode::Reentrant)
}

/// The key of a request to `path`, or the status of its refusal.
async fn key_of(app: &Router, path: &str) -> Result<String, StatusCode> {
    let response = put(app, path).await;
    match response.status() {
        StatusCode::OK => {
            let told = text(response).await;
            Ok(told.trim_start_matches("reentrant ").to_owned())
        }
        status => Err(status),
    }
}

fn by_id<K: KeyExtractor + Clone + 'static>(key: K) -> Router {
    orders().layer(exclusive().key(key))
}

/// Rows: spellings that the handler reads as one order. Cells: whether the extractor makes one key
/// of them.
#[tokio::test]
async fn every_spelling_of_one_resource_is_one_key_with_the_recommended_extractors() {
    let typed = by_id(key::extract(|Path(id): Path<u64>| {
        LockKey::from_parts("order", [id.to_string()])
    }));
    let param = by_id(key::param("order", "id"));
    let default = orders().layer(exclusive());
    let path = by_id(key::path());
    // One number: only a typed extractor knows.
    for spelling in ["1", "01", "+1", "%31", "%2B1", "0%30%31"] {
        let path = format!("/orders/{spelling}");
        assert_eq!(
            key_of(&typed, &path).await.unwrap(),
            "order:1",
            "{spelling}"
        );
    }
    // One text: a decoded parameter knows, and so does the default.
    for (spelling, plain) in [
        ("%61", "a"),
        ("a%2Db", "a-b"),
        ("%7bx%7d", "{x}"),
        ("a%3Ab", "a:b"),
        ("a%2fb", "a%2Fb"),
        ("%c3%a9", "é"),
        ("a%00", "a%00"),
    ] {
        let (spelling, plain) = (format!("/orders/{spelling}"), format!("/orders/{plain}"));
        for app in [&param, &default] {
            let key = key_of(app, &plain).await.unwrap();
            assert_eq!(key_of(app, &spelling).await.unwrap(), key, "{spelling}");
        }
    }
    // One spelling under RFC 3986: the path knows.
    for (spelling, plain) in [("%61", "a"), ("%c3%a9", "%C3%A9"), ("%7ex", "~x")] {
        let (spelling, plain) = (format!("/orders/{spelling}"), format!("/orders/{plain}"));
        let key = key_of(&path, &plain).await.unwrap();
        assert_eq!(key_of(&path, &spelling).await.unwrap(), key, "{spelling}");
    }
}

#[tokio::test]
async fn different_resources_have_different_keys() {
    let apps = [
        by_id(key::param("order", "id")),
        orders().layer(exclusive()),
        by_id(key::path()),
    ];
    let long = "x".repeat(300);
    let longer = "x".repeat(301);
    let decomposed = "e%CC%81";
    for app in apps {
        let mut keys = std::collections::HashSet::new();
        let ids = [
            "1", "01", "a", "A", "a%2Fb", "a%252Fb", "a:", ":a", "%7Ba%7D", "%C3%A9", decomposed,
            "%0D%0A", "%00", "a%20", "a+", "*", "%23", &long, &longer,
        ];
        for id in ids {
            let key = key_of(&app, &format!("/orders/{id}")).await.unwrap();
            let plain = |byte: u8| byte.is_ascii_graphic() && !b"{}".contains(&byte);
            assert!(key.bytes().all(plain) && key.len() < 300, "{key}");
            assert!(keys.insert(key), "{id}");
        }
    }
}

#[tokio::test]
async fn what_names_nothing_sensible_is_400() {
    let long = format!("/orders/{}", "x".repeat(5000));
    for app in [
        by_id(key::param("order", "id")),
        orders().layer(exclusive()),
    ] {
        for path in ["/orders/%FF", "/orders/%C3%28", &long] {
            let (status, problem) = problem(put(&app, path).await).await;
            assert_eq!(status, 400, "{path}");
            assert_eq!(problem["type"], "key-invalid", "{path}");
        }
    }
    let path = by_id(key::path());
    assert_eq!(key_of(&path, &long).await, Err(StatusCode::BAD_REQUEST));
}

#[tokio::test]
async fn an_extractor_that_rejects_answers_itself() {
    let app = by_id(key::extract(|Path(id): Path<u64>| {
        LockKey::from_parts("order", [id.to_string()])
    }));
    let response = put(&app, "/orders/x").await;
    assert_eq!(response.status(), 400);
    let rejection = response
        .extensions()
        .get::<tower_distributed_lock::Rejection>();
    assert_eq!(rejection.unwrap().kind().as_str(), "key-rejected");
    assert!(
        text(response)
            .await
            .starts_with("Invalid URL: Cannot parse")
    );
}

#[tokio::test]
async fn a_key_may_be_looked_up() {
    let looked_up = key::extract(async |Path(slug): Path<String>| {
        tokio::task::yield_now().await;
        (slug != "none").then(|| LockKey::from_parts("order", [slug.len().to_string()]))
    });
    let app = by_id(looked_up);
    assert_eq!(key_of(&app, "/orders/seven").await.unwrap(), "order:5");
    assert!(key_of(&app, "/orders/none").await.is_err());
}

#[tokio::test]
async fn an_extractor_may_need_state() {
    #[derive(Clone)]
    struct Prefix(&'static str);
    type Extracted = (axum::extract::State<Prefix>, Path<String>);
    let key =
        |(axum::extract::State(prefix), Path(id)): Extracted| LockKey::from_parts(prefix.0, [id]);
    let app = by_id(key::extract_with_state(Prefix("shop"), key));
    assert_eq!(key_of(&app, "/orders/7").await.unwrap(), "shop:7");
}

#[tokio::test]
async fn a_header_is_taken_from_one_line_of_utf8() {
    let app = by_id(key::header("x-account"));
    let send = async |values: &[&[u8]]| {
        let mut request = request("PUT", "/orders/1");
        for value in values {
            let value = HeaderValue::from_bytes(value).unwrap();
            request.headers_mut().append("x-account", value);
        }
        send(&app, request).await
    };
    assert_eq!(
        text(send(&[b"a:b"]).await).await,
        "reentrant x-account:a%3Ab"
    );
    assert_eq!(
        text(send(&[" é ".as_bytes()]).await).await,
        "reentrant x-account:%C3%A9"
    );
    let huge = [b'x'; 390_000];
    let cases: [(&[&[u8]], &str); 5] = [
        (&[], "key-missing"),
        (&[b"a", b"a"], "key-invalid"),
        (&[b""], "key-invalid"),
        (&[b"\xff"], "key-invalid"),
        (&[&huge], "key-invalid"),
    ];
    for (values, refusal) in cases {
        let (status, problem) = problem(send(values).await).await;
        assert_eq!(status, 400);
        assert_eq!(problem["type"], refusal);
    }
}

#[tokio::test]
async fn closures_return_a_key_an_option_several_or_an_error() {
    let one = by_id(|_: &Parts| LockKey::from("account:42"));
    assert_eq!(key_of(&one, "/orders/1").await.unwrap(), "account:42");
    let none = by_id(|_: &Parts| None::<LockKey>);
    assert_eq!(
        key_of(&none, "/orders/1").await,
        Err(StatusCode::BAD_REQUEST)
    );
    let error = by_id(|_: &Parts| Err::<LockKey, _>(KeyError::invalid("no")));
    let (_, problem) = problem(put(&error, "/orders/1").await).await;
    assert_eq!(
        (&problem["type"], &problem["detail"]),
        (&"key-invalid".into(), &"no".into())
    );
    let response = by_id(|_: &Parts| {
        let response = http::Response::builder()
            .status(403)
            .body(String::from("not you"));
        Err::<LockKey, _>(KeyError::response(response.unwrap()))
    });
    assert_eq!(
        key_of(&response, "/orders/1").await,
        Err(StatusCode::FORBIDDEN)
    );
}

#[tokio::test(start_paused = true)]
async fn several_keys_are_locked_together_each_in_its_mode() {
    let (_store, locks, layer) = locking();
    let app = Router::new()
        .route("/transfers", any(slow))
        .layer(layer.key(|_: &Parts| {
            [
                (LockKey::from("ledger"), LockMode::Write),
                (LockKey::from("rates"), LockMode::Read),
            ]
        }));
    let transfer = async { put(&app, "/transfers").await };
    let others = async {
        settle().await;
        let once = |key: &str, mode| {
            locks
                .lock(key)
                .mode(mode)
                .wait(std::time::Duration::ZERO)
                .acquire()
        };
        assert!(once("ledger", LockMode::Read).await.is_err());
        assert!(once("rates", LockMode::Write).await.is_err());
        drop(once("rates", LockMode::Read).await.unwrap());
    };
    let (response, ()) = tokio::join!(transfer, others);
    assert_eq!(response.status(), 200);
}

/// The transfer back would be a lock of its own if the fields were one name.
#[tokio::test]
async fn an_array_or_a_pair_of_extractors_locks_all_their_keys() {
    async fn keys(layer: Router, body: &'static str) -> String {
        let request = Request::post("/orders/7").body(Body::from(body)).unwrap();
        text(send(&layer, request).await).await
    }
    let (_store, _locks, layer) = locking();
    let locked = async |lock: LockHandle| {
        let keys: Vec<_> = lock.keys().map(ToString::to_string).collect();
        keys.join(" ")
    };
    let app = || Router::new().route("/orders/{id}", any(locked));
    let field = |pointer| key::json_field("account", pointer);
    let both = app().layer(layer.clone().key(["/from", "/to"].map(field)));
    for transfer in [r#"{"from":"a","to":"b"}"#, r#"{"from":"b","to":"a"}"#] {
        assert_eq!(keys(both.clone(), transfer).await, "account:a account:b");
    }
    let pair = app().layer(layer.key((key::param("order", "id"), field("/to"))));
    assert_eq!(keys(pair, r#"{"to":"a"}"#).await, "account:a order:7");
}

/// With the keys that are left, the request would run without one of its locks.
#[tokio::test]
async fn an_extractor_without_a_key_beside_another_is_a_missing_key() {
    fn at(header: &'static str) -> impl Fn(&Parts) -> Option<LockKey> + Clone {
        move |parts| {
            let name = parts.headers.get(header)?.to_str().ok()?;
            Some(LockKey::from_parts(header, [name]))
        }
    }
    for app in [by_id((at("a"), at("b"))), by_id(["a", "b"].map(at))] {
        for (headers, status) in [(&["a"][..], 400), (&["b"], 400), (&["a", "b"], 200)] {
            let mut request = request("PUT", "/orders/1");
            for name in headers {
                let id = HeaderValue::from_static("7");
                request.headers_mut().insert(*name, id);
            }
            assert_eq!(send(&app, request).await.status(), status, "{headers:?}");
        }
    }
}

#[tokio::test]
async fn a_request_without_a_key_is_refused_or_passes_or_shares_a_name() {
    let (_store, _locks, layer) = locking();
    let layer = layer.key(key::header("x-account"));
    let app = orders().layer(layer.clone());
    let (status, problem) = problem(put(&app, "/orders/1").await).await;
    assert_eq!(
        (status.as_u16(), &problem["type"]),
        (400, &"key-missing".into())
    );
    assert_eq!(problem["detail"], "the header `x-account` is missing");
    let app = orders().layer(layer.clone().on_missing(OnMissing::Skip));
    assert_eq!(text(put(&app, "/orders/1").await).await, "unlocked");
    let app = orders().layer(layer.on_missing(OnMissing::Use("none")));
    assert_eq!(text(put(&app, "/orders/1").await).await, "write none");
}

#[tokio::test]
async fn a_parameter_that_the_route_does_not_have_is_a_mistake_of_the_program() {
    let layer = exclusive().key(key::param("order", "id"));
    let app = |layer| Router::new().route("/orders", get(describe)).layer(layer);
    let response = send(&app(layer.clone()), request("GET", "/orders")).await;
    let rejection = response.extensions().get::<Rejection>().unwrap();
    let cause = rejection.cause().unwrap().to_string();
    assert!(
        cause.contains("no parameter `id`") && cause.contains("route_layer"),
        "{cause}"
    );
    let (status, problem) = problem(response).await;
    assert_eq!(
        (status.as_u16(), &problem["type"]),
        (500, &"lock-misconfigured".into())
    );
    assert_eq!(problem.get("detail"), None, "the client is not to blame");

    let skipping = app(layer.clone().on_missing(OnMissing::Skip));
    let passed = send(&skipping, request("GET", "/orders")).await;
    assert_eq!(text(passed).await, "unlocked");
    let elsewhere = send(&app(layer), request("GET", "/nowhere")).await;
    assert_eq!(
        elsewhere.status(),
        400,
        "no route: not the program's mistake"
    );
}

/// A pointer that points at nothing would be a missing key in every request, which `OnMissing::Skip` lets pass unlocked.
#[test]
fn a_pointer_without_a_slash_is_refused_when_the_layer_is_made() {
    let refused = std::panic::catch_unwind(|| {
        let _ = key::json_field("lock:order", "order/id");
    });
    let panic = refused.expect_err("the slash is missing");
    let reason = panic.downcast_ref::<String>().expect("a text");
    assert!(reason.contains("`/order/id`"), "{reason}");
    let _ = key::json_field("lock:order", "");
}

#[tokio::test(start_paused = true)]
async fn the_name_of_requests_without_a_key_is_taken_as_it_is() {
    let (_store, _locks, layer) = locking();
    let layer = layer.key(key::header("x-order"));
    let app = orders().layer(layer.on_missing(OnMissing::Use("lock:{größe}:none")));
    let answer = text(put(&app, "/orders/1").await).await;
    assert_eq!(answer, "write lock:{größe}:none");
}
