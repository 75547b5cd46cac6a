//! Documents: reads share, writes exclude.

use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;
use tower_distributed_lock::{DistributedLockLayer, LockHandle};

use crate::hold::Hold;
use crate::store::{Entry, Failure, Store};

/// The longest document (bytes).
const LIMIT: usize = 1024 * 1024;

/// The layer's defaults are enough: the key is the route with the id, GET reads, PUT and DELETE write. No lock is held
/// during an upload.
pub(crate) fn routes(lock: DistributedLockLayer) -> Router<Store> {
    Router::new()
        .route("/documents/{id}", get(show).put(replace).delete(remove))
        .layer(lock)
        .layer(DefaultBodyLimit::max(LIMIT))
}

async fn show(
    State(store): State<Store>,
    Path(id): Path<String>,
    Query(hold): Query<Hold>,
    lock: LockHandle,
) -> Result<Response, Failure> {
    let document = document(&store, &id).await?;
    hold.pass().await;
    let version = document.version;
    Ok(answer(&id, version, document.value, &lock))
}

async fn replace(
    State(store): State<Store>,
    Path(id): Path<String>,
    Query(hold): Query<Hold>,
    lock: LockHandle,
    content: String,
) -> Result<Response, Failure> {
    let before = document(&store, &id).await?;
    hold.pass().await;
    store.write([before.change(Some(&content))?]).await?;
    Ok(answer(&id, before.version + 1, Some(content), &lock))
}

async fn remove(
    State(store): State<Store>,
    Path(id): Path<String>,
    Query(hold): Query<Hold>,
    lock: LockHandle,
) -> Result<Response, Failure> {
    let document = document(&store, &id).await?;
    hold.pass().await;
    if document.value.is_some() {
        store.write([document.change(None)?]).await?;
    }
    let version = document.version;
    Ok(answer(&id, version, document.value, &lock))
}

async fn document(store: &Store, id: &str) -> Result<Entry<String>, Failure> {
    store.read(format!("documents:{id}")).await
}

fn answer(id: &str, version: u64, content: Option<String>, lock: &LockHandle) -> Response {
    let mode = lock.mode().as_str();
    match content {
        Some(content) => {
            Json(json!({ "id": id, "version": version, "content": content, "mode": mode }))
                .into_response()
        }
        None => (
            StatusCode::NOT_FOUND,
            Json(json!({ "id": id, "error": "no such document" })),
        )
            .into_response(),
    }
}
