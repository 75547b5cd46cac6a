//! Breaks a lock.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Json;
use axum::body::to_bytes;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};
use tracing::Instrument;

use crate::key::in_store;
use crate::problem::Problem;
use crate::same_origin::is_same_origin;
use crate::shared::{Shared, join};
use tower_distributed_lock::LockKey;
use tower_distributed_lock::telemetry::digest;

/// The longest body. No program has keys of this length.
const LONGEST: usize = 64 * 1024;

/// The request.
#[derive(Deserialize)]
struct BreakRequest {
    key: String,
    /// The key again, as the user has typed it.
    confirm: String,
    /// The ids of the holders that the user has seen. If there is another one just before the break, none is ended.
    holders: Vec<String>,
}

/// `api/break`: the answer has the state of the key just before, and whether any hold was ended.
pub(crate) async fn break_lock(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Json<Value>, Problem> {
    let (parts, body) = request.into_parts();
    let caller = caller(&parts.extensions, &parts.headers);
    let refused = |status, why: &str| {
        // A stranger may send any number of them.
        match shared.refused_breaks.due() {
            Some(left_out) => {
                tracing::warn!(
                    caller,
                    why,
                    left_out,
                    "the console has refused to break a lock"
                );
            }
            None => tracing::debug!(caller, why, "the console has refused to break a lock"),
        }
        Problem::new(status, why)
    };
    if !shared.may_break {
        let why = "this console does not break locks: see `Console::allow_force_unlock`";
        return Err(refused(StatusCode::FORBIDDEN, why));
    }
    if !is_same_origin(&parts.headers, &parts.uri) {
        let why = "only the page itself may break a lock";
        return Err(refused(StatusCode::FORBIDDEN, why));
    }
    if !is_json(&parts.headers) {
        let why = "the body must be application/json";
        return Err(refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    let body = to_bytes(body, LONGEST).await;
    let body =
        body.map_err(|_| Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long"))?;
    let request: BreakRequest = serde_json::from_slice(&body).map_err(|_| {
        let shape = "the body must be {\"key\": …, \"confirm\": …, \"holders\": […]}";
        Problem::bad_request(shape)
    })?;
    if request.key != request.confirm {
        return Err(Problem::bad_request("`confirm` must be the key's name"));
    }
    // The break is logged even if the caller does not wait for the answer.
    let breaking = break_now(shared, request, caller).in_current_span();
    join(tokio::spawn(breaking)).await.map(Json)
}

/// Ends the holds, and logs the caller.
async fn break_now(
    shared: Arc<Shared>,
    request: BreakRequest,
    caller: String,
) -> Result<Value, Problem> {
    let key = LockKey::new(request.key);
    let admin = shared.locks.admin()?;
    let was = admin.inspect(&key).await?;
    let mut ids = was.holders.iter().map(|holder| &holder.id);
    if was.has_all_holders()
        && let Some(other) = ids.find(|id| !request.holders.contains(id))
    {
        let why = format!("it is not held any more by the one that was shown, but by {other}");
        return Err(Problem::new(StatusCode::CONFLICT, why));
    }
    // It expects a break until it is known that there is none.
    shared.history.expect_break(key.name(), caller.clone());
    let broken = admin.force_unlock(&key).await;
    if !matches!(broken, Ok(true)) {
        shared.history.no_break(key.name());
    }
    let broken = broken?;
    if broken {
        let (digest, holders) = (digest(&key).to_string(), was.holders.len());
        tracing::warn!(key = %digest, caller, holders, "a lock was broken from the console");
        for holder in &was.holders {
            tracing::debug!(key = %digest, holder = holder.id, "it was held");
        }
    }
    let was = in_store(&was, &shared.holders);
    Ok(json!({ "key": key, "broken": broken, "was": was }))
}

/// A form on a page of another origin cannot send this type.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// The address of the caller, and the one that a proxy has added.
fn caller(extensions: &axum::http::Extensions, headers: &HeaderMap) -> String {
    let address = extensions.get::<ConnectInfo<SocketAddr>>();
    let mut caller = match address {
        Some(ConnectInfo(address)) => address.to_string(),
        None => "an unknown address".to_owned(),
    };
    for name in ["forwarded", "x-forwarded-for"] {
        if let Some(value) = headers.get(name) {
            let value = String::from_utf8_lossy(value.as_bytes());
            let value: String = value.chars().take(200).collect();
            caller.push_str(&format!(", {name} {value:?}"));
        }
    }
    caller
}
