//! Accounts, and transfers between two of them, which lock both.

use std::num::NonZeroU64;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::json;
use tower_distributed_lock::key::{self, KeyError, Keys};
use tower_distributed_lock::{DistributedLockLayer, LockHandle, LockKey};

use crate::hold::Hold;
use crate::store::{Entry, Failure, Store};

/// The first balance of every account.
const OPENING_BALANCE: u64 = 1000;

/// The longest transfer (bytes).
const LIMIT: usize = 16 * 1024;

const MALFORMED: &str =
    r#"send {"from": "…", "to": "…", "amount": …}, with a whole amount above zero"#;

#[derive(Deserialize)]
struct Transfer {
    from: String,
    to: String,
    amount: NonZeroU64,
}

/// GET reads and POST writes, on one name per account: `lock:account:<id>`.
pub(crate) fn routes(lock: DistributedLockLayer) -> Router<Store> {
    let one = lock.clone().key(key::param("lock:account", "id"));
    let both = lock.key(accounts_of);
    Router::new()
        .route("/accounts/{id}", get(show).route_layer(one))
        .route("/transfers", post(transfer).route_layer(both))
        .layer(DefaultBodyLimit::max(LIMIT))
}

/// Both accounts, in any order: keys that are locked together are sorted, so that there is no
/// deadlock.
fn accounts_of(parts: &Parts) -> Result<[Keys; 2], KeyError> {
    let transfer: Transfer =
        serde_json::from_slice(key::body(parts)?).map_err(|_| KeyError::invalid(MALFORMED))?;
    Ok(
        [transfer.from, transfer.to]
            .map(|id| Keys::from(LockKey::from_parts("lock:account", [id]))),
    )
}

async fn show(
    State(store): State<Store>,
    Path(id): Path<String>,
    Query(hold): Query<Hold>,
    lock: LockHandle,
) -> Result<Response, Failure> {
    let balance = balance(&account(&store, &id).await?);
    hold.pass().await;
    let mode = lock.mode().as_str();
    Ok(Json(json!({ "id": id, "balance": balance, "mode": mode })).into_response())
}

async fn transfer(
    State(store): State<Store>,
    Query(hold): Query<Hold>,
    body: Bytes,
) -> Result<Response, Failure> {
    let Ok(Transfer { from, to, amount }) = serde_json::from_slice(&body) else {
        return Ok(refuse(StatusCode::BAD_REQUEST, MALFORMED));
    };
    if from == to {
        return Ok(refuse(
            StatusCode::BAD_REQUEST,
            "from and to are the same account",
        ));
    }
    let (payer, payee) = (account(&store, &from).await?, account(&store, &to).await?);
    hold.pass().await;
    let Some(rest) = balance(&payer).checked_sub(amount.get()) else {
        return Ok(refuse(
            StatusCode::UNPROCESSABLE_ENTITY,
            "insufficient funds",
        ));
    };
    let sum = balance(&payee) + amount.get();
    store
        .write([payer.change(Some(&rest))?, payee.change(Some(&sum))?])
        .await?;
    let answer = json!({
        "from": { "id": from, "balance": rest },
        "to": { "id": to, "balance": sum },
        "balances": { &from: rest, &to: sum },
    });
    Ok(Json(answer).into_response())
}

async fn account(store: &Store, id: &str) -> Result<Entry<u64>, Failure> {
    store.read(format!("accounts:{id}")).await
}

fn balance(account: &Entry<u64>) -> u64 {
    account.value.unwrap_or(OPENING_BALANCE)
}

fn refuse(status: StatusCode, error: &str) -> Response {
    (status, Json(json!({ "error": error }))).into_response()
}
