//! Key extractors: a typed parameter, a field of the body, several keys at once.
//!
//! ```text
//! $ cargo run --example custom_keys
//! GET /orders/1 locks read lock:order:1
//! PUT /orders/01 locks write lock:order:1
//! POST /payments locks write lock:order:1
//! POST /from/b/to/a locks write lock:account:a
//! ```

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Path;
use axum::http::Request;
use axum::routing::{get, post};
use tower::ServiceExt;
use tower_distributed_lock::{DistributedLockLayer, LockClient, LockHandle, MemoryStore};
use tower_distributed_lock::{LockKey, key};

/// Answers with the locked key.
async fn show(lock: LockHandle) -> String {
    format!("{} {}", lock.mode().as_str(), lock.key())
}

fn order(Path(id): Path<u64>) -> LockKey {
    LockKey::from_parts("lock:order", [id.to_string()])
}

/// Both keys are locked together, always in one order, so that no two requests wait for each other.
fn pair(Path(pair): Path<(String, String)>) -> [LockKey; 2] {
    [pair.0, pair.1].map(|one| LockKey::from_parts("lock:account", [one]))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let lock = DistributedLockLayer::new(LockClient::new(MemoryStore::new()));
    // `Path<u64>` reads `1`, `01` and `+1` as one order, so they are one key.
    let typed = lock.clone().key(key::extract(order));
    let field = key::json_field("lock:order", "/order/id");
    let field = lock.clone().key(field);
    let both = lock.key(key::extract(pair));
    let app: Router = Router::new()
        .route("/orders/{id}", get(show).put(show).route_layer(typed))
        .route("/payments", post(show).route_layer(field))
        .route("/from/{a}/to/{b}", post(show).route_layer(both));

    for (request, sent) in [
        ("GET /orders/1", ""),
        ("PUT /orders/01", ""),
        ("POST /payments", r#"{"order": {"id": 1}}"#),
        ("POST /from/b/to/a", ""),
    ] {
        let (method, path) = request.split_once(' ').unwrap_or_default();
        let built = Request::builder().method(method).uri(path);
        let response = app.clone().oneshot(built.body(Body::from(sent))?).await?;
        let answer = to_bytes(response.into_body(), 4096).await?;
        println!("{request} locks {}", String::from_utf8_lossy(&answer));
    }
    Ok(())
}
