//! The routes.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::{MethodRouter, get, post};
use axum::{Json, Router, middleware};
use serde::Deserialize;
use serde_json::Value;

use crate::keys::KeysQuery;
use crate::problem::Problem;
use crate::shared::Shared;
use crate::{assets, break_lock, host, key, live};
use tower_distributed_lock::lock::LockKey;

/// Only code from the page's own files, and no connection to another origin. `require-trusted-types-for` makes the browser
/// refuse text as markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";

/// The headers of every answer. Names of locks are not kept in a browser's cache.
const HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (header::CACHE_CONTROL, "no-store"),
];

/// How long a request waits for the store.
const STORE_ANSWER_LIMIT: Duration = Duration::from_secs(10);

type Locks = State<Arc<Shared>>;

pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let api = Router::new()
        .route("/api/process", read(Shared::process))
        .route("/api/events", read(|shared| shared.history.events()))
        .route("/api/durations", read(|shared| shared.history.durations()))
        .route("/api/contended", read(|shared| shared.history.contended()))
        .route("/api/keys", get(keys))
        .route("/api/key", get(one_key))
        .route("/api/store", get(store))
        .route("/api/live", get(live::live))
        .route("/api/break", post(break_lock::break_lock));
    assets::routes()
        .merge(api)
        .fallback(async || Problem::new(StatusCode::NOT_FOUND, "the console has no such page"))
        .layer(middleware::from_fn_with_state(shared.clone(), host::check))
        .layer(middleware::map_response(secured))
        .with_state(shared)
}

async fn secured(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

/// Answers with what the process knows, without a question to the store.
fn read(read: fn(&Shared) -> Value) -> MethodRouter<Arc<Shared>> {
    get(async move |State(shared): Locks| Json(read(&shared)))
}

async fn store(State(shared): Locks) -> Json<Value> {
    Json(shared.store(STORE_ANSWER_LIMIT).await)
}

async fn keys(
    State(shared): Locks,
    query: Result<Query<KeysQuery>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let Query(query) = query?;
    shared.keys(query).await.map(Json)
}

#[derive(Deserialize)]
struct KeyQuery {
    key: String,
}

async fn one_key(
    State(shared): Locks,
    query: Result<Query<KeyQuery>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let Query(KeyQuery { key }) = query?;
    Ok(Json(
        key::look(&shared, &LockKey::new(key), STORE_ANSWER_LIMIT).await,
    ))
}
