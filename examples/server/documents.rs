//! Documents: reads share, writes exclude.

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tower_distributed_lock::{DistributedLockLayer, LockHandle};

use crate::hold::Hold;
use crate::store::{Failure, Store};

/// The longest document (bytes).
const LIMIT: usize = 1024 * 1024;

#[derive(Serialize, Deserialize)]
struct Document {
    version: u64,
    content: String,
}

/// The layer's defaults do: its key is the route with the id, GET reads, PUT and DELETE write. Nobody holds a lock while
/// their upload is on its way.
pub(crate) fn routes(lock: DistributedLockLayer) -> Router<Store> {
    Router::new()
        .route("/documents/{id}", get(show).put(replace).delete(remove))
        .layer(lock.buffer_body(LIMIT))
}

async fn show(
    State(store): State<Store>,
    Path(id): Path<String>,
    Query(hold): Query<Hold>,
    lock: LockHandle,
) -> Result<Response, Failure> {
    let document = store.read(&name(&id)).await?;
    hold.pass().await;
    Ok(answer(&id, document, &lock))
}

async fn replace(
    State(store): State<Store>,
    Path(id): Path<String>,
    Query(hold): Query<Hold>,
    lock: LockHandle,
    content: String,
) -> Result<Response, Failure> {
    let before: Option<Document> = store.read(&name(&id)).await?;
    hold.pass().await;
    let version = before.map_or(0, |document| document.version) + 1;
    let document = Document { version, content };
    store.write(name(&id), &document).await?;
    Ok(answer(&id, Some(document), &lock))
}

async fn remove(
    State(store): State<Store>,
    Path(id): Path<String>,
    Query(hold): Query<Hold>,
    lock: LockHandle,
) -> Result<Response, Failure> {
    let document = store.read(&name(&id)).await?;
    hold.pass().await;
    store.remove(&name(&id)).await?;
    Ok(answer(&id, document, &lock))
}

fn name(id: &str) -> String {
    format!("documents:{id}")
}

fn answer(id: &str, document: Option<Document>, lock: &LockHandle) -> Response {
    let mode = lock.mode().as_str();
    match document {
        Some(Document { version, content }) => {
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
