//! The route, with the layer in front as the fast path.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use tower::ServiceExt;
use tower_distributed_lock::idempotency::IdempotencyKey;
use tower_distributed_lock::{IdempotencyLayer, LockClient, MemoryStore};

use crate::bank::Bank;
use crate::step;

/// Serves `POST /payments`. The layer keeps repeats apart and answers them from its record, and the handler's transaction decides.
fn app(bank: Bank, locks: LockClient) -> Router {
    let once = IdempotencyLayer::new(locks).shared().required();
    Router::new()
        .route("/payments", post(handle).route_layer(once))
        .with_state(bank)
}

/// The key is the name under which the layer keeps its record. The raw header would not do: `"k"` and `k` are one key, and each
/// tenant has its own.
async fn handle(State(bank): State<Bank>, key: IdempotencyKey) -> Result<String, StatusCode> {
    step::reached("claimed");
    let paid = bank.pay(&key, 30).await;
    let paid = paid.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    paid.ok_or(StatusCode::UNPROCESSABLE_ENTITY)
}

/// Sends one request to the app, as a client would.
pub(crate) async fn pay(bank: Bank, key: &str) -> anyhow::Result<String> {
    // In a service this is a `RedisStore`. A store that dies with its process has forgotten every record at a repeat: the
    // transaction must do without it.
    let locks = LockClient::new(MemoryStore::new());
    let request = Request::post("/payments").header("idempotency-key", key);
    let app = app(bank, locks);
    step::reached("sent");
    let response = app.oneshot(request.body(Body::empty())?).await?;
    step::reached("recorded");
    anyhow::ensure!(response.status() == StatusCode::OK, "{}", response.status());
    let body = to_bytes(response.into_body(), 1024).await?;
    Ok(String::from_utf8(body.to_vec())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A repeat that the layer answers does not reach the database.
    #[tokio::test]
    async fn the_layer_answers_a_repeat_from_its_record() {
        let folder = tempfile::tempdir().expect("a folder");
        let bank = Bank::open(&folder.path().join("bank.db")).await.unwrap();
        let app = app(bank, LockClient::new(MemoryStore::new()));
        let mut answers = Vec::new();
        for _ in 0..2 {
            let request = Request::post("/payments").header("idempotency-key", "order-42");
            let request = request.body(Body::empty()).unwrap();
            let response = app.clone().oneshot(request).await.unwrap();
            let replayed = response.headers().contains_key("idempotent-replayed");
            let body = to_bytes(response.into_body(), 1024).await.unwrap();
            answers.push((replayed, String::from_utf8(body.to_vec()).unwrap()));
        }
        let answer = "paid: balance 70".to_owned();
        assert_eq!(answers, [(false, answer.clone()), (true, answer)]);
    }

    /// The record is lost, and the client uses its key again for another payment.
    #[tokio::test]
    async fn a_key_that_is_used_for_another_request_gets_no_receipt_of_the_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let bank = Bank::open(&folder.path().join("bank.db")).await.unwrap();
        for (body, status) in [("first", 200), ("second", 422), ("first", 200)] {
            let app = app(bank.clone(), LockClient::new(MemoryStore::new()));
            let request = Request::post("/payments").header("idempotency-key", "order-42");
            let request = request.body(Body::from(body)).unwrap();
            let response = app.oneshot(request).await.unwrap();
            assert_eq!(response.status(), status, "{body}");
        }
    }

    /// The database takes two spellings for one key, as the layer does, even if the record is lost.
    #[tokio::test]
    async fn a_key_in_quotes_is_paid_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let bank = Bank::open(&folder.path().join("bank.db")).await.unwrap();
        for key in ["order-42", "\"order-42\""] {
            let answer = pay(bank.clone(), key).await.unwrap();
            assert_eq!(answer, "paid: balance 70");
        }
    }
}
