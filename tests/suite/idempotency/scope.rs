//! The scope of a key.

use axum::body::Body;
use axum::response::Response;
use axum::routing::any;
use axum::{Extension, Router};
use http::Request;
use http::request::Parts;
use tower_distributed_lock::{IdempotencyLayer, LockClient, MemoryStore};

use super::{is_replay, remembering, send, text};

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
    let (_store, _locks, layer) = remembering();
    let tenant = |parts: &Parts| Some(parts.extensions.get::<Tenant>()?.0.clone());
    Router::new()
        .route("/orders", any(async || "order"))
        .route("/orders/{id}", any(async || "one order"))
        .route("/refunds", any(async || "refund"))
        .layer(layer.tenant(tenant))
}

#[tokio::test(start_paused = true)]
async fn one_key_serves_once_per_method_route_and_tenant() {
    let app = app();
    let scopes = [
        ("POST", "/orders", None),
        ("PUT", "/orders", None),
        ("PATCH", "/orders", None),
        ("DELETE", "/orders", None),
        ("PURGE", "/orders", None),
        ("POST", "/refunds", None),
        ("POST", "/orders/1", None),
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
    under(&app, "POST", "/orders/1", None).await;
    assert_eq!(under(&app, "POST", "/orders/2", None).await.status(), 422);
    let spelled = under(&app, "POST", "/orders/%31", None).await;
    assert!(is_replay(&spelled), "the path is the same");
}

/// A captured request with another query gets neither the other's receipt nor its own run.
#[tokio::test(start_paused = true)]
async fn another_query_or_content_type_is_another_request() {
    let app = app();
    let send = async |query: &str, media_type: Option<&str>| {
        let mut request = Request::post(format!("/refunds{query}")).header("idempotency-key", "k");
        if let Some(media_type) = media_type {
            request = request.header("content-type", media_type);
        }
        send(&app, request.body(Body::empty()).unwrap()).await
    };
    assert_eq!(send("?charge=1", Some("text/plain")).await.status(), 200);
    for (query, media_type) in [
        ("?charge=2", Some("text/plain")),
        ("", Some("text/plain")),
        ("?charge=1&charge=2", Some("text/plain")),
        ("?charge=1", Some("text/html")),
        ("?charge=1", None),
    ] {
        let other = send(query, media_type).await;
        assert_eq!(other.status(), 422, "{query} {media_type:?}");
    }
    assert!(is_replay(&send("?charge=1", Some("text/plain")).await));
}

/// Bob sends the key and the payment that he has seen in Alice's request.
#[tokio::test(start_paused = true)]
async fn a_tenant_gets_no_other_tenants_response_and_its_own_request_runs() {
    let (_store, _locks, layer) = remembering();
    let layer = layer
        .record_cookies()
        .tenant(|parts: &Parts| Some(parts.extensions.get::<Tenant>()?.0.clone()));
    let pay = async |Extension(Tenant(name)): Extension<Tenant>| {
        (
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

/// Otherwise somebody has another one's payment run again, by many requests of its own.
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
            let answer = under(&app, method, "/orders", None).await;
            assert!(!is_replay(&answer), "{method}");
        }
    }
}
