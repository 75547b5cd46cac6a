//! Several layers and extractors in one request.

mod tokens;

use std::time::Duration;

use axum::body::Body;
use axum::extract::{Json, Path, State};
use axum::routing::{any, post};
use axum::{Extension, Router};
use http::{Request, StatusCode};
use serde::Deserialize;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tower_distributed_lock::extract::{Lockable, Locked};
use tower_distributed_lock::{
    FencingToken, LockClient, LockError, LockGuard, LockHandle, LockKey, LockMode, LockRequest,
    MemoryStore, OnMissing, OnUnavailable, Owner, Rejection, key,
};

use super::store::TestStore;
use super::{MODES, locking, orders, problem, put, send, text};

#[derive(Deserialize)]
struct OrderId(u64);

impl Lockable for OrderId {
    fn lock(&self, locks: &LockClient) -> LockRequest {
        let key = LockKey::from_parts("order", [self.0.to_string()]);
        locks.lock(key).wait(Duration::ZERO)
    }
}

#[derive(Deserialize)]
struct Transfer {
    from: String,
    to: String,
}

impl Lockable for Transfer {
    fn lock(&self, locks: &LockClient) -> LockRequest {
        let key = |account| LockKey::from_parts("account", [account]);
        locks.lock_all([key(&self.from), key(&self.to)])
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_layer_joins_what_the_first_one_holds() {
    for mode in MODES {
        let (store, locks, layer) = locking();
        let layer = layer.mode(mode).wait(Duration::ZERO);
        let app = orders().layer(layer.clone()).layer(layer);
        let response = put(&app, "/orders/1").await;
        assert_eq!(response.status(), 200, "{mode:?}");
        assert_eq!(store.asked(), 1, "{mode:?}");
        assert_eq!(locks.keys_in_use(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_extractor_and_the_handler_itself_join() {
    async fn pay(
        lock: LockHandle,
        owner: Owner,
        State(locks): State<LockClient>,
        Locked(Path(OrderId(id)), guard): Locked<Path<OrderId>>,
    ) -> Result<String, Rejection> {
        assert_eq!(guard.key(), lock.key());
        let again = locks
            .lock(lock.key())
            .owner(&owner)
            .wait(Duration::ZERO)
            .await?;
        again.release().await?;
        guard.release().await?;
        assert!(!lock.is_lost(), "the layer still holds it");
        Ok(format!("paid {id}"))
    }
    let (store, locks, layer) = locking();
    let app = Router::new()
        .route("/orders/{id}", any(pay))
        .layer(
            layer
                .mode(LockMode::Reentrant)
                .key(key::param("order", "id")),
        )
        .with_state(locks.clone());
    assert_eq!(text(put(&app, "/orders/7").await).await, "paid 7");
    assert_eq!(store.asked(), 1);
    assert!(store.is_free());
    assert_eq!(locks.keys_in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn two_extractors_without_a_layer_join_each_other() {
    async fn pay(_: Locked<Path<OrderId>>, _: Locked<Path<OrderId>>) -> &'static str {
        "paid"
    }
    let locks = LockClient::new(MemoryStore::new());
    let app = Router::new()
        .route("/orders/{id}", any(pay))
        .with_state(locks.clone());
    assert_eq!(text(put(&app, "/orders/7").await).await, "paid");
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(locks.keys_in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_does_not_release_its_guard_is_answered_even_if_the_lock_was_broken() {
    let (store, locks, _layer) = locking();
    for (releases, status) in [(true, 500), (false, 200)] {
        let store = store.clone();
        let pay = async move |Locked(_, guard): Locked<Path<OrderId>>| {
            store.steal().await;
            match releases {
                true => guard.release().await,
                false => Ok(()),
            }
        };
        let app = Router::new()
            .route("/orders/{id}", any(pay))
            .with_state(locks.clone());
        assert_eq!(put(&app, "/orders/7").await.status(), status);
    }
}

#[tokio::test(start_paused = true)]
async fn an_extractor_locks_what_a_body_names() {
    async fn transfer(Locked(Json(transfer), guard): Locked<Json<Transfer>>) -> String {
        let keys: Vec<_> = guard.keys().map(LockKey::as_str).collect();
        format!("{} {} {}", transfer.from, transfer.to, keys.join(" "))
    }
    let app = Router::new()
        .route("/transfers", post(transfer))
        .with_state(LockClient::new(MemoryStore::new()));
    let request = |body: &'static str| {
        let request = Request::post("/transfers").header("content-type", "application/json");
        request.body(Body::from(body)).unwrap()
    };
    let answer = send(&app, request(r#"{"from": "b", "to": "a"}"#)).await;
    assert_eq!(text(answer).await, "b a account:a account:b");
    assert_eq!(send(&app, request("{}")).await.status(), 422);
}

#[tokio::test(start_paused = true)]
async fn an_extractor_that_finds_the_lock_busy_answers_as_the_layer_does() {
    async fn pay(_: Locked<Path<OrderId>>) {}
    let locks = LockClient::new(MemoryStore::new());
    let app = Router::new()
        .route("/orders/{id}", any(pay))
        .with_state(locks.clone());
    let elsewhere = locks.lock("order:7").await.unwrap();
    let response = put(&app, "/orders/7").await;
    assert!(response.extensions().get::<Rejection>().is_some());
    let (status, problem) = problem(response).await;
    assert_eq!(
        (status.as_u16(), &problem["type"]),
        (423, &"lock-contended".into())
    );
    assert_eq!(put(&app, "/orders/8").await.status(), 200);
    assert_eq!(put(&app, "/orders/x").await.status(), 400);
    drop(elsewhere);
}

/// The work is done. A client that repeats the request by itself, as it does after a 503, would do it again.
#[tokio::test(start_paused = true)]
async fn a_release_that_is_not_confirmed_is_answered_with_an_unknown_outcome() {
    async fn released(
        Extension(store): Extension<TestStore>,
        Locked(_, guard): Locked<Path<OrderId>>,
    ) -> Result<(), Rejection> {
        store.unplug(true);
        Ok(guard.release().await?)
    }
    async fn ran(
        (Extension(store), State(locks)): (Extension<TestStore>, State<LockClient>),
        Path(id): Path<String>,
    ) -> Result<(), LockError> {
        let done = locks.lock(id).run(async |_| store.silence(true)).await;
        let error = done.clone().unwrap_err();
        assert_eq!(tonic::Status::from(error).code(), tonic::Code::Unknown);
        done
    }
    for handler in [any(released), any(ran)] {
        let (store, locks, _layer) = locking();
        let app = Router::new()
            .route("/orders/{id}", handler)
            .layer(Extension(store))
            .with_state(locks);
        let response = put(&app, "/orders/7").await;
        assert!(response.headers().get("retry-after").is_none());
        let (status, problem) = problem(response).await;
        let (kind, outcome) = (&problem["type"], &problem["outcome"]);
        assert_eq!(
            (status.as_u16(), kind, outcome),
            (500, &"lock-lost".into(), &"unknown".into())
        );
    }
}

#[tokio::test(start_paused = true)]
async fn writing_inside_ones_own_read_is_the_programs_mistake() {
    let (store, _locks, layer) = locking();
    let inner = layer.clone().mode(LockMode::Write);
    let app = orders().layer(inner).layer(layer.mode(LockMode::Read));
    let (status, problem) = problem(put(&app, "/orders/1").await).await;
    assert_eq!(
        (status.as_u16(), &problem["type"]),
        (500, &"lock-misconfigured".into())
    );
    assert!(store.is_free());
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_is_named_with_its_remedy() {
    async fn handle(_: LockHandle) {}
    async fn token(_: FencingToken) {}
    let routes = || {
        Router::new()
            .route("/handle", any(handle))
            .route("/token", any(token))
    };
    let (_store, _locks, layer) = locking();
    let skipping = layer
        .clone()
        .key(key::header("x"))
        .on_missing(OnMissing::Skip);
    let absent = "Is `DistributedLockLayer` enabled?";
    for (app, path, remedy) in [
        (routes(), "/handle", absent),
        (routes(), "/token", absent),
        (
            routes().layer(skipping),
            "/handle",
            "Extract `Option<LockHandle>`",
        ),
        (
            routes().layer(layer),
            "/token",
            "`DistributedLockLayer::fenced`",
        ),
    ] {
        let response = put(&app, path).await;
        let rejection: Rejection = response.extensions().get().cloned().unwrap();
        let (status, problem) = problem(response).await;
        assert_eq!(status, 500);
        assert_eq!(problem["type"], "lock-misconfigured");
        // It is for the log.
        assert!(rejection.to_string().contains(remedy), "{rejection}");
        assert!(!problem.to_string().contains(remedy));
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_takes_a_share_keeps_the_lock_beyond_the_response() {
    // Like a handler that upgrades its connection and moves the share into the task that serves it.
    async fn upgrade(
        lock: LockHandle,
        State((locks, kept)): State<(LockClient, UnboundedSender<LockGuard>)>,
    ) -> StatusCode {
        kept.send(lock.share(&locks).await.unwrap()).unwrap();
        StatusCode::SWITCHING_PROTOCOLS
    }
    let (store, locks, layer) = locking();
    let (kept, mut shares) = unbounded_channel();
    let app = Router::new()
        .route("/orders/{id}", any(upgrade))
        .layer(layer)
        .with_state((locks, kept));
    assert_eq!(put(&app, "/orders/1").await.status(), 101);
    let share = shares.recv().await.unwrap();
    assert!(!store.is_free());
    share.release().await.unwrap();
    assert!(store.is_free());
}

#[tokio::test(start_paused = true)]
async fn a_share_is_in_every_key_of_the_layers_lock_and_in_no_other_lock() {
    let (store, locks, layer) = locking();
    let (kept, mut shares) = unbounded_channel();
    let of = locks.clone();
    let share = async move |lock: LockHandle| {
        let share = lock.share(&of).await.unwrap();
        kept.send((lock, share)).unwrap();
    };
    let layer = layer.key(|_: &http::request::Parts| ["a", "b"].map(LockKey::new));
    let app = Router::new().route("/orders/{id}", any(share)).layer(layer);
    assert_eq!(put(&app, "/orders/1").await.status(), 200);
    let (lock, share) = shares.recv().await.unwrap();
    assert!(share.keys().eq(["a", "b"].map(LockKey::new).iter()));
    assert_eq!(share.handle().id(), lock.id());
    // The lock of the layer has ended, and the share goes on without it.
    let refused = lock.share(&locks).await;
    assert!(matches!(refused, Err(LockError::Invalid(_))), "{refused:?}");
    let elsewhere = lock.share(&LockClient::new(store.clone())).await;
    assert!(
        matches!(elsewhere, Err(LockError::Invalid(_))),
        "{elsewhere:?}"
    );
    let of_a_guard = share.handle().share(&locks).await;
    assert!(
        matches!(of_a_guard, Err(LockError::Invalid(_))),
        "{of_a_guard:?}"
    );
    share.release().await.unwrap();
    assert!(store.is_free());
}

/// The handle of the outer lock would be taken for that of the inner one, and its token too.
#[tokio::test(start_paused = true)]
async fn a_request_that_goes_on_without_its_lock_shows_no_outer_one() {
    let (_store, _locks, outer) = locking();
    let (unplugged, _locks, inner) = locking();
    unplugged.unplug(true);
    let inner = inner.on_unavailable(OnUnavailable::Proceed);
    let app = orders().layer(inner).layer(outer.key(key::path()));
    assert_eq!(text(put(&app, "/orders/1").await).await, "unlocked");
}

#[tokio::test(start_paused = true)]
async fn a_request_for_which_an_inner_layer_takes_no_lock_shows_the_outer_one() {
    async fn tell(lock: LockHandle) -> String {
        lock.key().to_string()
    }
    let (_store, _locks, layer) = locking();
    let outer = layer.clone().key(key::path());
    let inner = layer.key(key::header("x"));
    for inner in [
        inner.clone().on_missing(OnMissing::Skip),
        inner.mode(|_: &http::request::Parts| None),
    ] {
        let app = Router::new()
            .route("/orders/{id}", any(tell))
            .layer(inner)
            .layer(outer.clone());
        let told = text(put(&app, "/orders/1").await).await;
        assert!(told.ends_with("/orders/1"), "{told}");
    }
}
