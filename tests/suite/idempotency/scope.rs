//! The scope of a key.

use axum::body::Body;
use axum::response::Response;
use axum::routing::any;
use axum::{Extension, Router};
use http::Request;
use http::request::Parts;
use tower_distributed_lock::idempotency::Recording;
use tower_distributed_lock::{IdempotencyLayer, LockClient, MemoryStore, key};
use tracing::Level;

use super::{is_replay, problem, remembering, send, text};
use crate::support::Log;

async fn under(app: &Router, method: &str, path: &str, tenant: Option<&str>) -> Response {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("idempotency-key", "k")
        .body(Body::empty())
        .unwrap();
    if let Some(tenant) = tenant {
        request.extensions_mut().insert(Tenant(tenant.to_owned()));
    }
    send(app, request).await
}

#[derive(Clone)]
struct Tenant(String);

fn app() -> Router {
    let (_store, locks, _) = remembering();
    let layer = IdempotencyLayer::new(locks);
    let tenant = |parts: &Parts| Some(parts.extensions.get::<Tenant>()?.0.clone());
    Router::new()
        .route("/orders", any(async || "order"))
        .route("/orders/{id}", any(async || "one order"))
        .route("/refunds", any(async || "refund"))
        .layer(layer.tenant(tenant))
}

fn shared() -> Router {
    shared_by(remembering().2)
}

fn shared_by(layer: IdempotencyLayer) -> Router {
    Router::new()
        .route("/refunds", any(async || "refund"))
        .layer(layer)
}

#[tokio::test(start_paused = true)]
async fn one_key_serves_once_per_method_route_and_tenant() {
    let app = app();
    let a = Some("a");
    let scopes = [
        ("PUT", "/orders", a),
        ("PATCH", "/orders", a),
        ("DELETE", "/orders", a),
        ("PURGE", "/orders", a),
        ("POST", "/refunds", a),
        ("POST", "/orders/1", a),
        ("POST", "/orders", Some("")),
        ("POST", "/orders", Some("a")),
        ("POST", "/orders", Some("b")),
        ("POST", "/orders", Some("a:b")),
    ];
    for repeated in [false, true] {
        for (method, path, tenant) in scopes {
            let answer = under(&app, method, path, tenant).await;
            assert_eq!(answer.status(), 200);
            assert_eq!(is_replay(&answer), repeated, "{method} {path} {tenant:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn another_resource_of_the_same_route_is_another_request() {
    let app = app();
    under(&app, "POST", "/orders/1", Some("a")).await;
    assert_eq!(
        under(&app, "POST", "/orders/2", Some("a")).await.status(),
        422
    );
    let spelled = under(&app, "POST", "/orders/%31", Some("a")).await;
    assert!(is_replay(&spelled), "the path is the same");
}

/// A captured request with another query gets neither the other's receipt nor its own run.
#[tokio::test(start_paused = true)]
async fn another_query_host_type_or_encoding_is_another_request() {
    let app = shared();
    let send = async |query: &str, headers: &[(&str, &str)]| {
        let mut request = Request::post(format!("/refunds{query}")).header("idempotency-key", "k");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        send(&app, request.body(Body::empty()).unwrap()).await
    };
    let (text, host) = (("content-type", "text/plain"), ("host", "api.example.com"));
    assert_eq!(send("?charge=1", &[text, host]).await.status(), 200);
    let others: [(&str, &[_]); 9] = [
        ("?charge=2", &[text, host]),
        ("", &[text, host]),
        ("?charge=1&charge=2", &[text, host]),
        ("?charge=1", &[("content-type", "text/html"), host]),
        ("?charge=1", &[host]),
        ("?charge=1", &[text, text, host]),
        ("?charge=1", &[text]),
        ("?charge=1", &[text, ("host", "evil.example.com")]),
        ("?charge=1", &[text, host, ("content-encoding", "gzip")]),
    ];
    for (query, headers) in others {
        let other = send(query, headers).await;
        assert_eq!(other.status(), 422, "{query} {headers:?}");
    }
    for spelling in ["API.example.com", "api.example.com:8443"] {
        let host = ("host", spelling);
        assert!(is_replay(&send("?charge=1", &[text, host]).await));
    }
    // HTTP/2 has the host in the target of the request.
    assert!(is_replay(
        &send_to(&app, "http://api.example.com/refunds?charge=1").await
    ));
}

async fn send_to(app: &Router, target: &str) -> Response {
    let request = Request::post(target)
        .header("idempotency-key", "k")
        .header("content-type", "text/plain");
    send(app, request.body(Body::empty()).unwrap()).await
}

/// A form with one field, as a client's library writes it.
fn form(boundary: &str, content_type: &str, field: &str) -> Request<Body> {
    let body = format!(
        "--{boundary}\r\ncontent-disposition: form-data; name=\"a\"\r\n\r\n{field}\r\n--{boundary}--\r\n"
    );
    Request::post("/refunds")
        .header("idempotency-key", "k")
        .header("content-type", content_type)
        .body(Body::from(body))
        .unwrap()
}

/// Each attempt of a library draws another boundary.
#[tokio::test(start_paused = true)]
async fn a_repeated_form_with_another_boundary_is_a_repeat_and_another_form_is_not() {
    let app = shared();
    let sent = async |boundary: &str, field: &str| {
        let content_type = format!("multipart/form-data; boundary={boundary}");
        send(&app, form(boundary, &content_type, field)).await
    };
    assert_eq!(sent("first", "1").await.status(), 200);
    assert!(is_replay(&sent("another-one", "1").await));
    let quoted = form("a b", "multipart/form-data; boundary=\"a b\"", "1");
    assert!(is_replay(&send(&app, quoted).await));
    for field in ["2", "", "1\r\n--x\r\n\r\n2"] {
        assert_eq!(sent("x", field).await.status(), 422, "{field}");
    }
    let other_type = form("x", "multipart/mixed; boundary=x", "1");
    assert_eq!(send(&app, other_type).await.status(), 422);
    let two = form("x", "multipart/form-data; boundary=x; boundary=y", "1");
    assert_eq!(send(&app, two).await.status(), 422);
}

/// The authentication is on the wrong side of the layer, or has forgotten its extension.
#[tokio::test(start_paused = true)]
async fn a_request_without_its_tenant_is_an_error_of_the_program_and_runs_nothing() {
    let (log, _guard) = Log::at(Level::ERROR);
    let app = app();
    for _ in 0..2 {
        let answer = under(&app, "POST", "/orders", None).await;
        let (status, problem) = problem(answer).await;
        assert_eq!(
            (status, &problem["type"]),
            (500, &"lock-misconfigured".into())
        );
    }
    assert!(log.text().contains("tenant"), "{}", log.text());
    assert_eq!(log.text().lines().count(), 1);
}

/// Bob sends the key and the payment that he has seen in Alice's request.
#[tokio::test(start_paused = true)]
async fn a_tenant_gets_no_other_tenants_response_and_its_own_request_runs() {
    let (_store, _locks, layer) = remembering();
    let layer = layer.tenant(|parts: &Parts| Some(parts.extensions.get::<Tenant>()?.0.clone()));
    let pay = async |Extension(Tenant(name)): Extension<Tenant>| {
        (
            Extension(Recording::WithCookies),
            [("set-cookie", format!("session={name}"))],
            format!("paid by {name}"),
        )
    };
    let app = Router::new().route("/payments", any(pay)).layer(layer);
    for replayed in [false, true] {
        for name in ["alice", "bob"] {
            let answer = under(&app, "POST", "/payments", Some(name)).await;
            assert_eq!(is_replay(&answer), replayed);
            assert_eq!(answer.headers()["set-cookie"], format!("session={name}"));
            assert_eq!(text(answer).await, format!("paid by {name}"));
        }
    }
}

/// Otherwise a client makes another client's payment run again, by sending many requests.
#[tokio::test(start_paused = true)]
async fn a_tenant_that_floods_the_records_pushes_out_its_own() {
    let locks = LockClient::new(MemoryStore::with_record_limit(100_000));
    let layer = IdempotencyLayer::new(locks)
        .tenant(|parts: &Parts| Some(parts.extensions.get::<Tenant>()?.0.clone()));
    // The record is in the header lines, which count.
    let pay = async || ([("x-receipt", "x".repeat(1000))], ());
    let app = Router::new().route("/payments", any(pay)).layer(layer);
    let pay = async |tenant: &str, key: usize| {
        let request = Request::post("/payments").header("idempotency-key", key);
        let request = request.extension(Tenant(tenant.to_owned()));
        let answer = send(&app, request.body(Body::empty()).unwrap()).await;
        assert_eq!(answer.status(), 200);
        is_replay(&answer)
    };
    assert!(!pay("victim", 1).await);
    for key in 0..500 {
        assert!(!pay("stranger", key).await);
    }
    assert!(pay("victim", 1).await, "its record is kept");
    assert!(pay("stranger", 499).await);
    assert!(!pay("stranger", 0).await, "there is no room for all");
}

#[tokio::test(start_paused = true)]
async fn a_function_decides_what_makes_two_requests_the_same() {
    let (_store, _locks, layer) = remembering();
    let layer = layer.fingerprint(|parts: &Parts, _: &[u8]| {
        parts.uri.query().map(str::to_owned).unwrap_or_default()
    });
    let app = Router::new()
        .route("/refunds", any(async || ()))
        .layer(layer);
    let send = async |query: &str, body: &'static str| {
        let request = Request::post(format!("/refunds{query}")).header("idempotency-key", "k");
        send(&app, request.body(Body::from(body)).unwrap()).await
    };
    assert_eq!(send("?charge=1", "a").await.status(), 200);
    assert!(is_replay(&send("?charge=1", "b").await));
    assert_eq!(send("?charge=2", "a").await.status(), 422);
}

#[tokio::test(start_paused = true)]
async fn safe_methods_run_each_time() {
    let app = app();
    for method in ["GET", "HEAD", "QUERY", "OPTIONS", "TRACE"] {
        for _ in 0..2 {
            let answer = under(&app, method, "/orders", Some("a")).await;
            assert!(!is_replay(&answer), "{method}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn requests_without_a_tenant_share_their_keys_if_the_program_says_so() {
    let (_store, locks, _) = remembering();
    let tenant = |parts: &Parts| Some(parts.extensions.get::<Tenant>()?.0.clone());
    let layer = IdempotencyLayer::new(locks).tenant(tenant).anonymous();
    let app = Router::new()
        .route("/orders", any(async || "order"))
        .layer(layer);
    for repeated in [false, true] {
        for tenant in [None, Some(""), Some("a")] {
            let answer = under(&app, "POST", "/orders", tenant).await;
            assert_eq!(is_replay(&answer), repeated, "{tenant:?}");
        }
    }
}

/// A rolling deploy has both names of the parameter at once.
#[tokio::test(start_paused = true)]
async fn a_record_is_found_again_after_a_parameter_is_renamed() {
    for (before, after, path) in [
        (
            "/orders/{id}/pay",
            "/orders/{order_id}/pay",
            "/orders/7/pay",
        ),
        ("/files/{*path}", "/files/{*rest}", "/files/a/b"),
        ("/{{x}}/{a}", "/{{x}}/{b}", "/{x}/1"),
    ] {
        let (_store, _locks, layer) = remembering();
        for (route, repeated) in [(before, false), (after, true)] {
            let app = Router::new()
                .route(route, any(async || ()))
                .layer(layer.clone());
            let answer = under(&app, "POST", path, None).await;
            assert_eq!(answer.status(), 200);
            assert_eq!(is_replay(&answer), repeated, "{route}");
        }
    }
}

/// Otherwise every request of the route would pass unprotected, although the program names a key.
#[tokio::test(start_paused = true)]
async fn a_route_without_the_parameter_of_the_key_is_a_mistake_of_the_program() {
    let (_store, _locks, layer) = remembering();
    let app = Router::new()
        .route("/orders/{id}", any(async || "one order"))
        .route("/orders", any(async || "order"))
        .layer(layer.key(key::param("lock:order", "id")));
    let (status, problem) = problem(under(&app, "POST", "/orders", None).await).await;
    assert_eq!(
        (status, &problem["type"]),
        (500, &"lock-misconfigured".into())
    );
    assert!(!is_replay(&under(&app, "POST", "/orders/1", None).await));
    assert!(is_replay(&under(&app, "POST", "/orders/1", None).await));
}
