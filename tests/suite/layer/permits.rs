//! At most so many requests at a time per key.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::any;
use futures_util::future::join_all;
use http::StatusCode;
use serde::Deserialize;
use tokio::time::{Instant, sleep};
use tower_distributed_lock::extract::{Lockable, Locked};
use tower_distributed_lock::{
    Confirm, DistributedLockLayer, Lease, LockClient, LockError, LockHandle, LockMode, LockRequest,
    MemoryStore, OnLost, Owner, Rejection, RejectionKind, Resource, key,
};

use super::{locking, orders, problem, put, request, send, settle, slow, slow_orders, text};

const SECOND: Duration = Duration::from_secs(1);

/// The key of the requests to `/orders/1`.
const FIRST: &str = "path:/orders/1";

fn by_path(layer: DistributedLockLayer, limit: u32) -> DistributedLockLayer {
    layer.key(key::path()).mode(LockMode::permits(limit))
}

async fn puts(app: &Router, path: &str, count: usize) -> Vec<Response> {
    join_all((0..count).map(|_| put(app, path))).await
}

fn statuses(answers: &[Response]) -> Vec<u16> {
    let mut statuses: Vec<_> = answers
        .iter()
        .map(|answer| answer.status().as_u16())
        .collect();
    statuses.sort_unstable();
    statuses
}

#[tokio::test(start_paused = true)]
async fn as_many_as_the_limit_pass_and_the_next_is_429() {
    let (store, locks, layer) = locking();
    let app = slow_orders().layer(by_path(layer, 3).wait(Duration::ZERO));
    let began = Instant::now();
    let mut answers = puts(&app, "/orders/1", 4).await;
    assert_eq!(statuses(&answers), [200, 200, 200, 429]);
    assert!(began.elapsed() < 2 * SECOND, "they run at the same time");
    answers.retain(|answer| answer.status() == StatusCode::TOO_MANY_REQUESTS);
    let refused = answers.remove(0);
    let after = refused.headers()["retry-after"].to_str().unwrap();
    assert!((1..=30).contains(&after.parse::<u64>().unwrap()), "{after}");
    let rejection = refused.extensions().get::<Rejection>().unwrap();
    assert_eq!(rejection.kind(), RejectionKind::NoPermit);
    assert!(matches!(rejection.cause(), Some(LockError::Busy { .. })));
    let (status, problem) = problem(refused).await;
    assert_eq!(
        (status.as_u16(), &problem["type"]),
        (429, &"no-permit".into())
    );
    assert_eq!(problem["status"], 429);
    assert_eq!(locks.keys_in_use(), 0);
    settle().await;
    assert!(store.is_free());
}

#[tokio::test(start_paused = true)]
async fn safe_methods_take_permits_as_well_and_each_key_has_its_own() {
    let (_store, _locks, layer) = locking();
    let app = slow_orders().layer(by_path(layer, 1).wait(Duration::ZERO));
    let get = |path| send(&app, request("GET", path));
    let answers = join_all([get("/orders/1"), get("/orders/1"), get("/orders/2")]).await;
    assert_eq!(statuses(&answers), [200, 200, 429]);
}

/// A request counts itself while its handler runs.
fn counted(most: &Arc<AtomicUsize>) -> Router {
    let here = Arc::new(AtomicUsize::new(0));
    let most = most.clone();
    let handler = async move || {
        most.fetch_max(here.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        sleep(SECOND).await;
        here.fetch_sub(1, Ordering::SeqCst);
    };
    Router::new().route("/orders/{id}", any(handler))
}

/// Two servers share the permits.
#[tokio::test(start_paused = true)]
async fn waiters_are_served_as_permits_come_free() {
    let (store, _locks, layer) = locking();
    let other = DistributedLockLayer::new(LockClient::new(store));
    let most = Arc::default();
    let app = counted(&most);
    let servers = [layer, other].map(|layer| {
        let layer = by_path(layer, 2).wait(60 * SECOND);
        app.clone().layer(layer)
    });
    let began = Instant::now();
    let requests = servers.iter().map(|server| puts(server, "/orders/1", 4));
    for answers in join_all(requests).await {
        assert_eq!(statuses(&answers), [200; 4]);
    }
    assert_eq!(most.load(Ordering::SeqCst), 2);
    // Eight requests of a second, two at a time. A permit that comes free is taken at once, and not at the next poll.
    let took = began.elapsed();
    assert!(took >= 4 * SECOND && took < 5 * SECOND, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_in_vain_is_429_when_it_is_over() {
    let (_store, _locks, layer) = locking();
    let layer = by_path(layer, 2).wait(3 * SECOND);
    let app = Router::new()
        .route("/orders/{id}", any(async || sleep(10 * SECOND).await))
        .layer(layer);
    let began = Instant::now();
    let (served, refused) = tokio::join!(puts(&app, "/orders/1", 2), async {
        settle().await;
        let refused = put(&app, "/orders/1").await;
        (refused, began.elapsed())
    });
    assert_eq!(statuses(&served), [200, 200]);
    let (refused, took) = refused;
    assert_eq!(refused.status(), 429);
    assert!(took >= 2 * SECOND && took < 4 * SECOND, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_was_stolen_is_500() {
    for confirm in [Confirm::Store, Confirm::Strict] {
        for on_lost in [OnLost::Abort, OnLost::Continue] {
            let (store, locks, layer) = locking();
            let layer = by_path(layer, 3).confirm(confirm).on_lost(on_lost);
            let steal = {
                let store = store.clone();
                async move || store.steal().await
            };
            let app = Router::new().route("/orders/{id}", any(steal)).layer(layer);
            let lost = put(&app, "/orders/1").await;
            assert!(lost.headers().get("retry-after").is_none());
            let (status, problem) = problem(lost).await;
            assert_eq!(status, 500, "{confirm:?} {on_lost:?}");
            assert_eq!(problem["type"], "lock-lost");
            assert_eq!(locks.keys_in_use(), 0);
        }
    }
}

/// The expiry of one permit is no loss of another, and lets one request in.
#[tokio::test(start_paused = true)]
async fn a_permit_that_expired_is_500_and_the_others_are_served() {
    let (_store, locks, layer) = locking();
    let most = Arc::default();
    let hasty = by_path(layer.clone(), 2).lease(Lease::Fixed(SECOND / 2));
    let hasty = counted(&most).layer(hasty.on_lost(OnLost::Continue));
    let steady = counted(&most).layer(by_path(layer, 2));
    let (lost, one, next) =
        tokio::join!(put(&hasty, "/orders/1"), put(&steady, "/orders/1"), async {
            settle().await;
            put(&steady, "/orders/1").await
        });
    let (status, problem) = problem(lost).await;
    assert_eq!(
        (status.as_u16(), &problem["type"]),
        (500, &"lock-lost".into())
    );
    assert_eq!((one.status().as_u16(), next.status().as_u16()), (200, 200));
    assert_eq!(locks.keys_in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn another_limit_on_the_same_key_is_500_with_the_conflict() {
    let (_store, locks, layer) = locking();
    let (two, three) = (by_path(layer.clone(), 2), by_path(layer, 3));
    let (two, three) = (slow_orders().layer(two), slow_orders().layer(three));
    let (served, refused) = tokio::join!(put(&two, "/orders/1"), async {
        settle().await;
        put(&three, "/orders/1").await
    });
    assert_eq!(served.status(), 200);
    assert!(refused.headers().get("retry-after").is_none());
    let rejection = refused.extensions().get::<Rejection>().unwrap();
    assert_eq!(rejection.kind(), RejectionKind::Misconfigured);
    let cause = rejection.cause().unwrap();
    assert!(matches!(cause, LockError::Conflict(_)), "{cause:?}");
    let (status, problem) = problem(refused).await;
    assert_eq!(
        (status.as_u16(), &problem["type"]),
        (500, &"lock-misconfigured".into())
    );
    // When none holds a permit, the other limit counts.
    settle().await;
    assert_eq!(statuses(&puts(&three, "/orders/1", 3).await), [200; 3]);
    assert_eq!(locks.keys_in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_admin_changes_the_limit_of_requests_that_name_another() {
    let store = MemoryStore::new();
    let locks = LockClient::new(store);
    let admin = locks.admin().unwrap();
    let layer = by_path(DistributedLockLayer::new(locks), 2);
    let hasty = slow_orders().layer(layer.clone().wait(Duration::ZERO));
    admin.set_permits(FIRST, 3).await.unwrap();
    let answers = puts(&hasty, "/orders/1", 4).await;
    assert_eq!(statuses(&answers), [200, 200, 200, 429]);
    admin.set_permits(FIRST, 1).await.unwrap();
    let answers = puts(&hasty, "/orders/1", 2).await;
    assert_eq!(statuses(&answers), [200, 429]);

    // A request that waits is served as soon as the limit is raised.
    let patient = slow_orders().layer(layer.wait(60 * SECOND));
    let began = Instant::now();
    let (answers, ()) = tokio::join!(puts(&patient, "/orders/1", 2), async {
        sleep(SECOND / 4).await;
        admin.set_permits(FIRST, 2).await.unwrap();
    });
    assert_eq!(statuses(&answers), [200, 200]);
    assert!(began.elapsed() < SECOND * 3 / 2, "{:?}", began.elapsed());

    admin.clear_permit_limit(FIRST).await.unwrap();
    let answers = puts(&hasty, "/orders/1", 3).await;
    assert_eq!(statuses(&answers), [200, 200, 429]);
}

const MAILS: Resource = Resource::new("permit:mail").permits(2);

#[tokio::test(start_paused = true)]
async fn a_layer_takes_a_permit_of_a_resource_with_permits_whatever_its_mode() {
    let (_store, locks, layer) = locking();
    let layer = layer.key(key::param(MAILS, "id")).wait(Duration::ZERO);
    let described = orders().layer(layer.clone());
    let told = text(put(&described, "/orders/7").await).await;
    assert_eq!(told, "permit permit:mail:7");
    let job = locks.lock(MAILS.id(7)).await.unwrap();
    let app = slow_orders().layer(layer);
    assert_eq!(statuses(&puts(&app, "/orders/7", 2).await), [200, 429]);
    job.release().await.unwrap();
}

/// The owner of the request has a permit, and does not need a second one.
#[tokio::test(start_paused = true)]
async fn a_handler_uses_the_permit_of_its_layer_as_the_owner() {
    async fn handler(State(locks): State<LockClient>, owner: Owner, lock: LockHandle) {
        assert_eq!(lock.mode(), LockMode::permits(1));
        let again = locks.lock(lock.key().clone()).permits(1).owner(&owner);
        again
            .wait(Duration::ZERO)
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        let another = locks.lock(lock.key().clone()).permits(1);
        let another = another.wait(Duration::ZERO).await;
        assert!(
            matches!(another, Err(LockError::Busy { .. })),
            "{another:?}"
        );
        slow().await;
    }
    let (_store, locks, layer) = locking();
    let app = Router::new()
        .route("/orders/{id}", any(handler))
        .layer(by_path(layer, 1).wait(Duration::ZERO))
        .with_state(locks);
    assert_eq!(statuses(&puts(&app, "/orders/1", 2).await), [200, 429]);
}

/// A mail to a service that bears two calls at a time.
#[derive(Deserialize)]
struct MailId(u64);

impl Lockable for MailId {
    fn lock(&self, locks: &LockClient) -> LockRequest {
        locks.lock(MAILS.id(self.0)).wait(Duration::ZERO)
    }
}

#[tokio::test(start_paused = true)]
async fn an_extractor_without_a_permit_is_429() {
    async fn handler(Locked(_, guard): Locked<Path<MailId>>) -> Result<(), Rejection> {
        slow().await;
        Ok(guard.release().await?)
    }
    let (_store, locks, _layer) = locking();
    let app = Router::new()
        .route("/orders/{id}", any(handler))
        .with_state(locks);
    let answers = puts(&app, "/orders/7", 3).await;
    assert_eq!(statuses(&answers), [200, 200, 429]);
    let refused = answers.into_iter().find(|answer| answer.status() == 429);
    let refused = refused.unwrap();
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(problem(refused).await.1["type"], "no-permit");
}
