//! One resource is one lock, for the layer, the client, the extractors and the admin.

use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::any;
use tower_distributed_lock::{
    DistributedLockLayer, LockAdmin, LockClient, LockError, LockMode, MemoryStore, OnCancel, Owner,
    Rejection, RejectionKind, Resource, key,
};

use super::{describe, locking, orders, put, request, send, settle, slow, text};

const ORDERS: Resource = Resource::new("lock:order");
const LEDGERS: Resource = Resource::new("lock:ledger").exclusive();

fn by_id(layer: DistributedLockLayer) -> DistributedLockLayer {
    layer.key(key::param(ORDERS, "id"))
}

#[tokio::test(start_paused = true)]
async fn a_layer_and_a_job_exclude_each_other_on_one_resource() {
    let (_store, locks, layer) = locking();
    let app = orders().layer(by_id(layer).wait(Duration::ZERO));
    let job = locks.lock(ORDERS.id(42)).await.unwrap();
    assert_eq!(
        (job.mode(), job.key().as_str()),
        (LockMode::Write, "lock:order:42")
    );
    for method in ["GET", "PUT"] {
        let refused = send(&app, request(method, "/orders/42")).await;
        assert_eq!(refused.status(), 423, "{method}");
    }
    assert_eq!(put(&app, "/orders/43").await.status(), 200);
    job.release().await.unwrap();

    let reading = locks
        .lock(ORDERS.id(42))
        .mode(LockMode::Read)
        .await
        .unwrap();
    let read = send(&app, request("GET", "/orders/42")).await;
    assert_eq!(text(read).await, "read lock:order:42");
    assert_eq!(put(&app, "/orders/42").await.status(), 423);
    reading.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_job_waits_for_a_request_on_the_same_resource() {
    let (_store, locks, layer) = locking();
    let app = Router::new()
        .route("/orders/{id}", any(slow))
        .layer(by_id(layer));
    let request = tokio::spawn(async move { put(&app, "/orders/42").await });
    settle().await;
    let job = locks.lock(ORDERS.id(42)).wait(Duration::ZERO).await;
    assert!(matches!(job, Err(LockError::Busy { .. })), "{job:?}");
    assert_eq!(request.await.unwrap().status(), 200);
    locks
        .lock(ORDERS.id(42))
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_exclusive_resource_is_locked_exclusively_and_another_mode_is_refused() {
    let (_store, locks, layer) = locking();
    let guard = locks.lock(LEDGERS.id(1)).await.unwrap();
    assert_eq!(guard.mode(), LockMode::Reentrant);
    guard.release().await.unwrap();

    for (resource, mode) in [(LEDGERS, LockMode::Write), (ORDERS, LockMode::Fair)] {
        let refused = locks.lock(resource.id(1)).mode(mode).await.unwrap_err();
        assert!(matches!(refused, LockError::Invalid(_)), "{refused}");
        assert!(
            refused.to_string().contains("choose `LockMode::"),
            "{refused}"
        );
    }
    let ledgers = layer.key(key::param(LEDGERS, "id"));
    let response = put(&orders().layer(ledgers.clone()), "/orders/1").await;
    let rejection = response.extensions().get::<Rejection>().unwrap();
    assert_eq!(rejection.kind(), RejectionKind::Misconfigured);
    assert!(
        rejection
            .cause()
            .unwrap()
            .to_string()
            .contains("`LockMode::Reentrant`")
    );
    let fair = orders().layer(ledgers.mode(LockMode::Fair));
    assert_eq!(
        text(put(&fair, "/orders/1").await).await,
        "fair lock:ledger:1"
    );
}

/// Two families on one name are a conflict, whose error says what to do.
#[tokio::test(start_paused = true)]
async fn a_plain_name_in_the_other_family_is_a_conflict_and_never_a_second_lock() {
    let (_store, locks, layer) = locking();
    let layer = layer.key(key::param("lock:order", "id"));
    let app = orders().layer(layer.clone());
    let job = locks.lock("lock:order:42").await.unwrap();
    assert_eq!(job.mode(), LockMode::Reentrant);
    let response = put(&app, "/orders/42").await;
    assert_eq!(response.status(), 500);
    assert!(response.headers().get("retry-after").is_none());
    let rejection = response.extensions().get::<Rejection>().unwrap();
    assert_eq!(rejection.kind(), RejectionKind::Misconfigured);
    let cause = rejection.cause().unwrap();
    assert!(matches!(cause, LockError::Conflict(_)), "{cause}");
    assert!(cause.to_string().contains("one family of modes"), "{cause}");
    job.release().await.unwrap();

    let app = Router::new().route("/orders/{id}", any(slow)).layer(layer);
    let request = tokio::spawn(async move { put(&app, "/orders/42").await });
    settle().await;
    let job = locks.lock("lock:order:42").await;
    assert!(matches!(job, Err(LockError::Conflict(_))), "{job:?}");
    assert_eq!(request.await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn the_admin_sees_what_the_layer_holds() {
    let store = MemoryStore::new();
    let layer = DistributedLockLayer::new(LockClient::new(store.clone()));
    let app = Router::new()
        .route("/orders/{id}", any(slow))
        .layer(by_id(layer));
    let request = tokio::spawn(async move { put(&app, "/orders/42").await });
    settle().await;
    let inspection = LockAdmin::new(store).inspect(ORDERS.id(42)).await.unwrap();
    assert_eq!(inspection.holders.len(), 1);
    request.await.unwrap();
}

/// The handler asks for the lock that its layer holds.
fn locking_again(layer: DistributedLockLayer, locks: &LockClient) -> Router {
    async fn again(State(locks): State<LockClient>, Path(id): Path<u64>) -> Result<(), Rejection> {
        locks.lock(ORDERS.id(id)).await?.release().await?;
        Ok(())
    }
    Router::new()
        .route("/orders/{id}", any(again))
        .layer(layer)
        .with_state(locks.clone())
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_locks_what_its_layer_holds_is_500_at_once_with_a_remedy() {
    let (_store, locks, layer) = locking();
    let app = locking_again(by_id(layer), &locks);
    let asked = tokio::time::Instant::now();
    let response = put(&app, "/orders/42").await;
    assert_eq!(response.status(), 500);
    let rejection = response.extensions().get::<Rejection>().unwrap();
    let cause = rejection.cause().unwrap().to_string();
    assert!(
        cause.contains("`Owner`") && cause.contains("holds the key already"),
        "{cause}"
    );
    assert!(asked.elapsed() < Duration::from_secs(1));
    // The layer's read excludes a write, and not another read.
    let read = send(&app, request("GET", "/orders/42")).await;
    assert_eq!(read.status(), 500);
}

/// The inner layer moves the handler to a task of its own.
#[tokio::test(start_paused = true)]
async fn a_handler_that_runs_to_completion_is_still_inside_of_the_outer_layers_lock() {
    let (_store, locks, layer) = locking();
    let inner = layer.clone().key(key::param("lock:inner", "id"));
    let inner = inner.on_cancel(OnCancel::RunToCompletion);
    let app = locking_again(inner, &locks).layer(by_id(layer));
    let asked = tokio::time::Instant::now();
    assert_eq!(put(&app, "/orders/42").await.status(), 500);
    assert!(asked.elapsed() < Duration::from_secs(1));
}

/// The client has gone. The outer layer's hold is still that of another reader.
#[tokio::test(start_paused = true)]
async fn a_handler_that_outlives_its_request_waits_for_the_outer_layers_lock_like_others() {
    let (_store, locks, layer) = locking();
    let (granted, mut late) = tokio::sync::mpsc::unbounded_channel();
    let outlive = async move |Path(id): Path<u64>| {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let again = locks.lock(ORDERS.id(id)).await;
        granted.send(again.map(drop)).unwrap();
    };
    let inner = layer.clone().key(key::param("lock:inner", "id"));
    let app = Router::new()
        .route("/orders/{id}/late", any(outlive))
        .layer(inner.on_cancel(OnCancel::RunToCompletion))
        .route("/orders/{id}", any(slow))
        .layer(by_id(layer));
    let late_read = send(&app, request("GET", "/orders/42/late"));
    let gone = tokio::time::timeout(Duration::from_millis(100), late_read);
    let other = async {
        settle().await;
        send(&app, request("GET", "/orders/42")).await
    };
    let (gone, other) = tokio::join!(gone, other);
    assert!(gone.is_err());
    assert_eq!(other.status(), 200);
    let late = late.recv().await.unwrap();
    assert!(late.is_ok(), "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn a_handler_may_lock_other_keys_and_its_own_as_the_owner_or_without_a_wait() {
    async fn others(State(locks): State<LockClient>, owner: Owner, Path(id): Path<u64>) {
        locks
            .lock(ORDERS.id(id + 1))
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        let own = locks.lock(ORDERS.id(id)).owner(&owner).await.unwrap();
        own.release().await.unwrap();
        let tried = locks.lock(ORDERS.id(id)).wait(Duration::ZERO).await;
        assert!(matches!(tried, Err(LockError::Busy { .. })), "{tried:?}");
    }
    let (_store, locks, layer) = locking();
    let app = Router::new()
        .route("/orders/{id}", any(others))
        .layer(by_id(layer.clone()))
        .layer(layer.key(key::path()))
        .with_state(locks);
    assert_eq!(put(&app, "/orders/42").await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_read_inside_a_read_of_the_layer_is_not_refused() {
    async fn again(State(locks): State<LockClient>, Path(id): Path<u64>) {
        let read = locks.lock(ORDERS.id(id)).mode(LockMode::Read);
        read.await.unwrap().release().await.unwrap();
    }
    let (_store, locks, layer) = locking();
    let app = Router::new()
        .route("/orders/{id}", any(again))
        .layer(by_id(layer))
        .with_state(locks);
    assert_eq!(send(&app, request("GET", "/orders/42")).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn each_of_several_keys_has_a_token_of_its_own() {
    let (_store, locks, layer) = locking();
    let guard = locks
        .lock_all([ORDERS.id(1), ORDERS.id(2)])
        .fenced()
        .await
        .unwrap();
    let tokens: Vec<_> = guard.fencing_tokens().collect();
    assert_eq!(tokens.len(), 2);
    for (key, token) in &tokens {
        assert!(token.is_some(), "{key}");
    }
    assert_eq!(tokens[0].1, guard.fencing_token());
    let handle = guard.handle();
    assert!(handle.fencing_tokens().eq(guard.fencing_tokens()));
    assert!(handle.keys().eq(guard.keys()));
    assert_eq!(handle.deadline(), guard.deadline());
    guard.release().await.unwrap();

    let several = layer
        .fenced()
        .key(|_: &http::request::Parts| [ORDERS.id(1), ORDERS.id(2)]);
    let one = async |_: tower_distributed_lock::FencingToken| {};
    let app = Router::new().route("/", any(one)).layer(several);
    let refused = put(&app, "/").await;
    assert_eq!(refused.status(), 500);
}

#[tokio::test(start_paused = true)]
async fn a_layer_names_resources_that_a_closure_returns() {
    let (_store, _locks, layer) = locking();
    let layer = layer.key(key::extract(|Path(id): Path<u64>| ORDERS.id(id)));
    let app = Router::new()
        .route("/orders/{id}", any(describe))
        .layer(layer);
    assert_eq!(
        text(put(&app, "/orders/007").await).await,
        "write lock:order:7"
    );
}
