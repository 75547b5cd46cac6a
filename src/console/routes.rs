//! The routes.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use serde::Deserialize;

use super::keys::{KeysQuery, KeysText};
use super::problem::Problem;
use super::shared::Shared;
use super::{assets, break_lock, history, key, live};
use crate::lock::LockKey;

/// Only code from the page's own files, and no connection to another origin. `require-trusted-types-for` makes the browser
/// refuse text as markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";

/// How long a request for one key waits for the store.
const PATIENCE: Duration = Duration::from_secs(10);

type Locks = State<Arc<Shared>>;

pub(super) fn router(shared: Arc<Shared>) -> Router {
    let api = Router::new()
        .route("/api/process", get(process))
        .route("/api/keys", get(keys))
        .route("/api/key", get(one_key))
        .route(
            "/api/events",
            get(async |State(shared): Locks| Json(history::events(&shared.locks))),
        )
        .route(
            "/api/durations",
            get(async |State(shared): Locks| Json(history::durations(&shared.locks))),
        )
        .route(
            "/api/contended",
            get(async |State(shared): Locks| Json(history::contended(&shared.locks))),
        )
        .route(
            "/api/store",
            get(async |State(shared): Locks| Json(shared.store().await)),
        )
        .route("/api/live", get(live::live))
        .route("/api/break", post(break_lock::break_lock));
    assets::routes()
        .merge(api)
        .fallback(async || Problem::new(StatusCode::NOT_FOUND, "the console has no such page"))
        .layer(middleware::map_response(secured))
        .with_state(shared)
}

/// Adds the headers of every answer.
async fn secured(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let mut set = |name, value| {
        headers.insert(name, HeaderValue::from_static(value));
    };
    set(header::CONTENT_SECURITY_POLICY, POLICY);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::X_FRAME_OPTIONS, "DENY");
    set(header::REFERRER_POLICY, "no-referrer");
    set(
        header::HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    );
    set(
        header::HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    );
    // Names of locks are not kept in a browser's cache.
    set(header::CACHE_CONTROL, "no-store");
    response
}

async fn process(State(shared): Locks) -> Response {
    Json(shared.process.json(shared.may_break)).into_response()
}

async fn keys(
    State(shared): Locks,
    Query(query): Query<KeysText>,
) -> Result<impl IntoResponse, Problem> {
    Ok(Json(shared.keys(KeysQuery::parse(query)?).await))
}

#[derive(Deserialize)]
struct KeyText {
    key: String,
}

async fn one_key(State(shared): Locks, Query(query): Query<KeyText>) -> impl IntoResponse {
    Json(key::look(&shared, &LockKey::new(query.key), PATIENCE).await)
}
