//! A former master that does not know that it was replaced.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::{post, put};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tower::ServiceExt;
use tower_distributed_lock::store::{LockStore, LockStoreExt};
use tower_distributed_lock::{
    Confirm, DistributedLockLayer, IdempotencyLayer, Lease, LockClient, LockError, LockMode,
    OnLost, RedisStore,
};

use super::{LIMIT, SHORT, is_unacknowledged, patient_store};
use crate::redis_store::{attempt, holds};
use crate::support::{Ending, Replicated, eventually};

/// Holds the links, makes a replica a master, and returns a client of it.
async fn replace(replicated: &Replicated) -> LockClient {
    replicated.hold_links();
    let promoted = &replicated.servers[1];
    let () = promoted.ask(&["REPLICAOF", "NO", "ONE"]).await;
    LockClient::new(RedisStore::connect(promoted.url()).await.unwrap())
}

#[tokio::test]
async fn a_replaced_master_grants_and_confirms_nothing() {
    let replicated = Replicated::start(2).await;
    let store = patient_store(&replicated, 2, SHORT).await;
    let [hold, idle] = ["k", "idle"].map(|key| attempt(key, LockMode::Write));
    for hold in [&hold, &idle] {
        eventually("it is granted", LIMIT, async || store.acquire(hold).await).await;
    }
    // All earlier writes are acknowledged, so that the replicas are in step now.
    assert!(holds(&store, &idle).await);
    replace(&replicated).await;
    is_unacknowledged(store.acquire(&attempt("new", LockMode::Write)).await);
    is_unacknowledged(store.release(&hold.hold, None).await);
    // An owner check changes nothing, and its answer does not count without acknowledgements either.
    is_unacknowledged(store.check(std::slice::from_ref(&idle.hold)).await);
}

/// It notices the end of the link, as after the promotion of its replica.
#[tokio::test]
async fn a_master_that_loses_its_replica_confirms_nothing_any_more() {
    let replicated = Replicated::start(1).await;
    let store = patient_store(&replicated, 1, SHORT).await;
    let hold = attempt("held", LockMode::Write);
    eventually("it is granted", LIMIT, async || store.acquire(&hold).await).await;
    replicated.links[0].refuse().await;
    assert!(replicated.links[0].cut(Ending::Close).await > 0);
    is_unacknowledged(store.check(std::slice::from_ref(&hold.hold)).await);
    is_unacknowledged(store.release(&hold.hold, None).await);
}

#[tokio::test]
async fn an_owner_check_on_an_idle_connection_needs_acknowledgements() {
    let replicated = Replicated::start(1).await;
    let store = patient_store(&replicated, 1, SHORT).await;
    let hold = attempt("k", LockMode::Write);
    eventually("it is granted", LIMIT, async || store.acquire(&hold).await).await;
    assert!(holds(&store, &hold).await);
    replicated.hold_links();
    is_unacknowledged(store.check(std::slice::from_ref(&hold.hold)).await);
}

/// A site whose handler reports that it runs, and waits for a permit.
struct Site {
    app: Router,
    inside: Arc<Semaphore>,
    go: Arc<Semaphore>,
}

impl Site {
    fn new(locks: LockClient, confirm: Confirm, lease: Duration) -> Self {
        let (inside, go) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let (entered, waiting) = (inside.clone(), go.clone());
        let handler = move || async move {
            entered.add_permits(1);
            let _ = waiting.acquire().await;
            "done"
        };
        let layer = DistributedLockLayer::new(locks)
            .lease(Lease::Renewed(lease))
            .on_lost(OnLost::Continue)
            .confirm(confirm);
        let app = Router::new()
            .route("/orders/{id}", put(handler))
            .layer(layer);
        Self { app, inside, go }
    }

    /// Sends a request, and returns when its handler runs under the lock.
    async fn enter(&self) -> JoinHandle<Answer> {
        // On a busy machine the replica's first acknowledgement may take longer than `SHORT`, which is a 503.
        eventually("the request is let in", LIMIT, async || {
            let mut asking = tokio::spawn(Self::ask(self.app.clone()));
            tokio::select! {
                entered = self.inside.acquire() => {
                    entered.expect("it is never closed").forget();
                    Ok(asking)
                }
                refused = &mut asking => Err(refused.unwrap()),
            }
        })
        .await
    }

    async fn ask(app: Router) -> Answer {
        let request = Request::put("/orders/1").body(Body::empty()).unwrap();
        let response = app.oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }
}

type Answer = (StatusCode, serde_json::Value);

async fn the_key_in(replicated: &Replicated) -> String {
    eventually("the lock is held", LIMIT, async || {
        let names = replicated.servers[1].dump().await.into_keys();
        names
            .into_iter()
            .find(|name| !name.starts_with("tower_lock_"))
    })
    .await
}

#[tokio::test]
async fn a_request_whose_lock_went_to_another_is_500_however_it_confirms() {
    // The replacement has to come before it ends.
    let lease = Duration::from_secs(5);
    for confirm in [Confirm::Store, Confirm::Strict] {
        let replicated = Replicated::start(1).await;
        let store = patient_store(&replicated, 1, SHORT).await;
        let site = Site::new(LockClient::new(store), confirm, lease);
        let asking = site.enter().await;
        let key = the_key_in(&replicated).await;
        let others = replace(&replicated).await;
        // The new master also has the hold, and no client renews it there.
        let second = others.lock(key.as_str()).mode(LockMode::Write);
        let second = second.wait(LIMIT).await.unwrap();
        site.go.add_permits(1);
        let (status, problem) = asking.await.unwrap();
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{confirm:?}");
        assert_eq!(crate::layer::kind_of(&problem), "lock-lost");
        second.release().await.unwrap();
    }
}

#[tokio::test]
async fn before_the_deadline_strict_is_500_and_store_is_200_while_the_lock_is_not_free() {
    let lease = Duration::from_secs(120);
    let expected = [
        (Confirm::Strict, StatusCode::INTERNAL_SERVER_ERROR),
        (Confirm::Store, StatusCode::OK),
    ];
    for (confirm, expected) in expected {
        let replicated = Replicated::start(1).await;
        let store = patient_store(&replicated, 1, SHORT).await;
        let site = Site::new(LockClient::new(store), confirm, lease);
        let asking = site.enter().await;
        let key = the_key_in(&replicated).await;
        let others = replace(&replicated).await;
        site.go.add_permits(1);
        assert_eq!(asking.await.unwrap().0, expected, "{confirm:?}");
        let second = others.lock(key.as_str()).mode(LockMode::Write);
        let refused = second.wait(Duration::ZERO).await.map(drop).unwrap_err();
        assert!(matches!(refused, LockError::Busy { .. }), "{refused:?}");
    }
}

fn payments<F>(locks: LockClient, pay: impl Fn() -> F + Clone + Send + Sync + 'static) -> Router
where
    F: Future<Output = &'static str> + Send + 'static,
{
    let layer = IdempotencyLayer::new(locks).shared();
    Router::new().route("/payments", post(pay)).layer(layer)
}

async fn pay(app: &Router) -> (StatusCode, bool) {
    let request = Request::post("/payments").header("idempotency-key", "k");
    let response = app.clone().oneshot(request.body(Body::empty()).unwrap());
    let response = response.await.unwrap();
    let is_replay = response.headers().contains_key("idempotent-replayed");
    (response.status(), is_replay)
}

/// S10. It has a record that no replica has, while the new master runs the work again, and confirms that.
#[tokio::test]
async fn a_replaced_master_answers_with_no_record_that_it_has_alone() {
    let replicated = Arc::new(Replicated::start(1).await);
    let store = patient_store(&replicated, 1, SHORT).await;
    let replacing = replicated.clone();
    let app = payments(LockClient::new(store), move || {
        let replicated = replacing.clone();
        async move {
            replace(&replicated).await;
            "paid"
        }
    });
    // On a busy machine the replica's first acknowledgement may take longer than `SHORT`, which is a 503.
    let first = eventually("the request is let in", LIMIT, async || {
        match pay(&app).await {
            (StatusCode::SERVICE_UNAVAILABLE, _) => Err("503"),
            answer => Ok(answer),
        }
    })
    .await;
    assert_eq!(first, (StatusCode::INTERNAL_SERVER_ERROR, false));
    assert_eq!(pay(&app).await, (StatusCode::SERVICE_UNAVAILABLE, false));
    let promoted = RedisStore::connect(replicated.servers[1].url());
    let again = payments(LockClient::new(promoted.await.unwrap()), async || "paid");
    let second = eventually("the former hold is over", LIMIT, async || {
        match pay(&again).await {
            (StatusCode::CONFLICT, _) => Err("409"),
            answer => Ok(answer),
        }
    });
    assert_eq!(second.await, (StatusCode::OK, false));
}

#[tokio::test]
async fn a_record_that_the_replicas_have_is_read() {
    let replicated = Replicated::start(1).await;
    let store = patient_store(&replicated, 1, SHORT).await;
    let app = payments(LockClient::new(store), async || "paid");
    for answer in [(StatusCode::OK, false), (StatusCode::OK, true)] {
        let answered = eventually("a replica acknowledges", LIMIT, async || {
            let answered = pay(&app).await;
            (answered == answer).then_some(()).ok_or(answered)
        });
        answered.await;
    }
}
