//! A lock per tenant. The tenant comes from the authentication, never from input of the client.
//!
//! ```text
//! $ cargo run --example tenants &
//! $ for tenant in apple apple pear; do
//! >   curl -s -X POST localhost:3000/reports -H "authorization: Bearer $tenant" &
//! > done; wait
//! the report of pear        # after one second
//! the report of apple       # after one second
//! the report of apple       # after two: the reports of one tenant wait for each other
//! ```

use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, Request};
use axum::http::{StatusCode, header::AUTHORIZATION, request::Parts};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::post;
use tokio::net::TcpListener;
use tower_distributed_lock::{DistributedLockLayer, LockClient, LockMode, MemoryStore, key};

#[derive(Clone)]
struct Tenant(&'static str);

async fn authenticate(mut request: Request, next: Next) -> Result<Response, StatusCode> {
    let token = request
        .headers()
        .get(AUTHORIZATION)
        .map(|token| token.as_bytes());
    let tenant = match token {
        Some(b"Bearer apple") => Tenant("apple"),
        Some(b"Bearer pear") => Tenant("pear"),
        _ => return Err(StatusCode::UNAUTHORIZED),
    };
    request.extensions_mut().insert(tenant);
    Ok(next.run(request).await)
}

/// Whose reports are locked. The authentication outside of the lock has let no request pass without a tenant.
fn tenant(parts: &Parts) -> Option<String> {
    let Tenant(name) = parts.extensions.get()?;
    Some((*name).to_owned())
}

async fn build(Extension(Tenant(name)): Extension<Tenant>) -> String {
    tokio::time::sleep(Duration::from_secs(1)).await;
    format!("the report of {name}\n")
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let locks = LockClient::new(MemoryStore::new());
    let lock = DistributedLockLayer::new(locks)
        // On purpose one lock for the route, of each tenant.
        .key(key::path())
        .mode(LockMode::Fair)
        .tenant(tenant);
    let build = post(build).route_layer(lock);
    let app = Router::new().route("/reports", build);
    let app = app.layer(from_fn(authenticate));
    Ok(axum::serve(TcpListener::bind("127.0.0.1:3000").await?, app).await?)
}
