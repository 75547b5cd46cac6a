//! Webhooks that may be delivered many times and count once.

use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tower_distributed_lock::idempotency::IdempotencyKey;
use tower_distributed_lock::{DistributedLockLayer, IdempotencyLayer, key};

use crate::hold::Hold;
use crate::signature::{self, Secret};
use crate::store::{Failure, Store};

/// The longest webhook (bytes).
pub(crate) const LIMIT: usize = 64 * 1024;

/// How many keys of webhooks an order keeps.
const REMEMBERED: usize = 32;

#[derive(Deserialize)]
struct Ordered {
    order: String,
}

/// The state of an order.
#[derive(Default, Serialize, Deserialize)]
struct Order {
    processed: u64,
    /// The keys of the last webhooks that were counted.
    ///
    /// The layer answers a repeat with the recorded response. A repeat still runs if the first run counted and ended before its
    /// response was recorded, because its write timed out and arrived late, or the server died. The count and the key change in
    /// one write, so that such a repeat counts nothing.
    counted: Vec<String>,
}

/// The layers, from the outside: the signature, because the key of a webhook verifies nothing; the record of an earlier delivery; and
/// the lock on the order, because webhooks with different ids may concern one order.
pub(crate) fn routes(
    lock: DistributedLockLayer,
    once: IdempotencyLayer,
    secret: Option<Secret>,
) -> Router<Store> {
    let lock = lock.key(key::json_field("lock:order", "/order"));
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
    key: IdempotencyKey,
    body: Bytes,
) -> Result<Response, Failure> {
    let Ok(Ordered { order }) = serde_json::from_slice(&body) else {
        let error = json!({ "error": r#"send {"order": "…"}"# });
        return Ok((StatusCode::BAD_REQUEST, Json(error)).into_response());
    };
    let mut entry = store.read::<Order>(format!("orders:{order}")).await?;
    let mut known = entry.value.take().unwrap_or_default();
    hold.pass().await;
    if !known.counted.iter().any(|counted| counted == key.as_str()) {
        known.processed += 1;
        known.counted.push(key.to_string());
        let forgotten = known.counted.len().saturating_sub(REMEMBERED);
        known.counted.drain(..forgotten);
        store.write([entry.change(Some(&known))?]).await?;
    }
    Ok(Json(json!({ "order": order, "processed": known.processed })).into_response())
}
