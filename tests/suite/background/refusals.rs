//! What a refused request costs the store.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::put;
use futures_util::future::join_all;
use http::{Request, StatusCode};
use tokio::time::sleep;
use tower::ServiceExt;
use tower_distributed_lock::{
    DistributedLockLayer, Lease, LockClient, LockError, LockKey, LockMode, Owner,
};

use super::wired::Wired;

const MODES: [LockMode; 4] = [
    LockMode::Reentrant,
    LockMode::Fair,
    LockMode::Write,
    LockMode::Read,
];

/// A lease that is not renewed during the test.
const LEASE: Lease = Lease::Fixed(Duration::from_secs(3600));

/// Another process holds the key, and there is no room for one more waiter.
#[tokio::test(start_paused = true)]
async fn a_request_without_room_asks_the_store() {
    const REFUSED: usize = 2000;
    for mode in MODES {
        let store = Wired::default();
        let other = LockClient::new(store.clone());
        let held = other.lock("1:n").mode(LockMode::Write);
        let held = match mode {
            LockMode::Read | LockMode::Write => held,
            mode => held.mode(mode),
        };
        let held = held.lease(LEASE).await.expect("free");
        let locks = LockClient::new(store.clone());
        let request = || {
            let request = locks.lock("1:n").mode(mode).lease(LEASE);
            request.max_waiters(8).wait(Duration::from_secs(60))
        };
        // One that asks, and eight behind it. Of fair requests each asks, and eight are admitted.
        let admitted = if mode == LockMode::Fair { 8 } else { 9 };
        let waiting: Vec<_> = (0..admitted)
            .map(|_| tokio::spawn(request().into_future()))
            .collect();
        sleep(Duration::from_millis(100)).await;
        let before = store.count();
        let refused = join_all((0..REFUSED).map(|_| request().into_future())).await;
        let overloaded =
            |refused: &Result<_, LockError>| matches!(refused, Err(LockError::Overloaded));
        assert!(refused.iter().all(overloaded), "{mode:?}");
        assert_eq!(store.count(), before, "{mode:?}: calls of the store");
        held.release().await.expect("held");
        for waiting in waiting {
            let granted = waiting.await.expect("it does not panic").expect("served");
            granted.release().await.expect("held");
        }
    }
}

/// The same through the layer.
#[tokio::test(start_paused = true)]
async fn a_503_of_the_layer_asks_the_store() {
    let store = Wired::default();
    let other = LockClient::new(store.clone());
    let held = other.lock("1:n").mode(LockMode::Write).lease(LEASE);
    let held = held.await.expect("free");
    let layer = DistributedLockLayer::new(LockClient::new(store.clone()));
    let layer = layer
        .key(|_: &http::request::Parts| LockKey::new("1:n"))
        .max_waiters(8);
    let app: Router = Router::new().route("/", put(async || "done")).layer(layer);
    let ask = || {
        let request = Request::put("/").body(Body::empty()).unwrap();
        app.clone().oneshot(request)
    };
    let waiting: Vec<_> = (0..9).map(|_| tokio::spawn(ask())).collect();
    sleep(Duration::from_millis(100)).await;
    let before = store.count();
    for refused in join_all((0..500).map(|_| ask())).await {
        let refused = refused.unwrap();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
    assert_eq!(store.count(), before, "calls of the store");
    held.release().await.expect("held");
    for waiting in waiting {
        let answer = waiting.await.expect("it does not panic").unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
    }
}

/// Of the other owner, one request waits for the key, and one for that request.
#[tokio::test(start_paused = true)]
async fn an_owner_that_holds_reads_although_another_owner_asks_twice() {
    const MS: Duration = Duration::from_millis(1);
    let store = Wired::default();
    store.slow(10 * MS);
    let locks = LockClient::new(store.clone());
    let request = |owner: &Owner, mode| {
        let request = locks.lock("1:n").mode(mode).owner(owner);
        request.lease(LEASE).max_waiters(1)
    };
    let (holder, other) = (Owner::new(), Owner::new());
    let write = request(&holder, LockMode::Write).await.expect("free");
    let rivals = [(); 2].map(|()| request(&other, LockMode::Write).into_future());
    let rivals = rivals.map(tokio::spawn);
    sleep(MS).await;
    let third = request(&other, LockMode::Write).await;
    assert!(matches!(third, Err(LockError::Overloaded)), "{third:?}");
    for _ in 0..3 {
        // The release of the one before it is under way.
        drop(request(&holder, LockMode::Read).await.expect("its own"));
    }
    drop(write);
    for rival in rivals {
        let served = rival.await.expect("it does not panic").expect("served");
        served.release().await.expect("held");
    }
    assert!(store.is_empty());
}

/// Each answer comes after the end of the lease, so no grant counts.
#[tokio::test(start_paused = true)]
async fn a_request_that_tries_once_asks_once_if_its_answer_is_late() {
    for keys in [1, 2] {
        let store = Wired::default();
        store.slow(Duration::from_millis(60));
        let locks = LockClient::new(store.clone());
        let request = locks.lock_all((0..keys).map(|n| format!("1:{n}")));
        let request = request.lease(Lease::Fixed(Duration::from_millis(50)));
        let refused = request.wait(Duration::ZERO).await;
        assert!(
            matches!(refused, Err(LockError::Unavailable(_))),
            "{refused:?}"
        );
        let asked = ["acquire", "acquire_several"].map(|what| store.calls(what, 1).len());
        assert_eq!(asked.iter().sum::<usize>(), 1);
        sleep(Duration::from_secs(1)).await;
        assert!(store.is_empty());
    }
}
