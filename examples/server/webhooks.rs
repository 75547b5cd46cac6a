//! Webhooks that may be delivered many times and count once.

use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::json;
use tower_distributed_lock::{DistributedLockLayer, IdempotencyLayer, OnCancel, key};

use crate::hold::Hold;
use crate::signature::{self, Secret};
use crate::store::{Failure, Store};

/// The longest webhook (bytes).
pub(crate) const LIMIT: usize = 64 * 1024;

#[derive(Deserialize)]
struct Ordered {
    order: String,
}

/// From the outside: whose webhook it is, whether it was processed before, and the lock on its order, since webhooks of
/// different ids may be about the same one.
pub(crate) fn routes(
    lock: DistributedLockLayer,
    once: IdempotencyLayer,
    secret: Option<Secret>,
) -> Router<Store> {
    let lock = lock
        .buffer_body(LIMIT)
        .key(key::json_field("order", "/order"));
    // A sender that hangs up between the write and its record would find the webhook processed once more.
    let once = once
        .key(key::standard_webhooks())
        .required()
        .on_cancel(OnCancel::RunToCompletion);
    let signed = from_fn_with_state(secret, signature::check);
    let ordered = post(ordered)
        .route_layer(lock)
        .route_layer(once)
        .route_layer(signed);
    Router::new().route("/webhooks/orders", ordered)
}

async fn ordered(
    State(store): State<Store>,
    Query(hold): Query<Hold>,
    body: Bytes,
) -> Result<Response, Failure> {
    let Ok(Ordered { order }) = serde_json::from_slice(&body) else {
        let error = json!({ "error": r#"send {"order": "…"}"# });
        return Ok((StatusCode::BAD_REQUEST, Json(error)).into_response());
    };
    let name = format!("orders:{order}");
    let before: Option<u64> = store.read(&name).await?;
    hold.pass().await;
    let processed = before.unwrap_or(0) + 1;
    store.write(name, &processed).await?;
    Ok(Json(json!({ "order": order, "processed": processed })).into_response())
}
