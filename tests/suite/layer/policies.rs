//! Settings, and invalid settings.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::DefaultBodyLimit;
use axum::routing::any;
use http::{Request, StatusCode};
use tokio::time::Instant;
use tower_distributed_lock::layer::ReadPolicy;
use tower_distributed_lock::store::Capabilities;
use tower_distributed_lock::{
    Confirm, DistributedLockLayer, Lease, LockMode, OnUnavailable, ReleaseOn, key,
};

use super::store::TestStore;
use super::{locking, orders, problem, put, request, send, settle, slow_orders, text};
use crate::support::LimitedStore;

fn reads(on_unavailable: OnUnavailable) -> ReadPolicy {
    ReadPolicy {
        on_unavailable,
        ..ReadPolicy::default()
    }
}

#[tokio::test(start_paused = true)]
async fn reads_may_go_on_unlocked_when_the_store_is_gone_and_writes_not() {
    let (store, _locks, layer) = locking();
    store.unplug(true);
    let app = orders().layer(layer.clone().reads(reads(OnUnavailable::Proceed)));
    // From the second one on it is known that the store does not answer.
    for _ in 0..3 {
        let read = send(&app, request("GET", "/orders/1")).await;
        assert_eq!(text(read).await, "unlocked");
        assert_eq!(put(&app, "/orders/1").await.status(), 503);
    }

    let layer = layer.on_unavailable(OnUnavailable::Proceed);
    let app = orders().layer(layer.clone());
    assert_eq!(text(put(&app, "/orders/1").await).await, "unlocked");
    let app = orders().layer(layer.reads(reads(OnUnavailable::Reject)));
    let read = send(&app, request("GET", "/orders/1")).await;
    assert_eq!(read.status(), 503);
}

#[tokio::test(start_paused = true)]
async fn going_on_unlocked_is_for_a_store_that_is_gone_and_not_for_a_busy_lock() {
    let (_store, locks, layer) = locking();
    let held = locks
        .lock("path:/orders/1")
        .mode(LockMode::Write)
        .await
        .unwrap();
    let layer = layer
        .on_unavailable(OnUnavailable::Proceed)
        .wait(Duration::ZERO);
    let app = orders().layer(layer.key(key::path()));
    assert_eq!(put(&app, "/orders/1").await.status(), 423);
    drop(held);
}

/// A body that arrives in two frames, 5 bytes each, a second apart.
fn upload(path: &str) -> Request<Body> {
    let frames = futures_util::stream::unfold(0, async |frame| {
        if frame == 2 {
            return None;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        Some((Ok::<_, std::io::Error>("12345"), frame + 1))
    });
    Request::put(path)
        .body(Body::from_stream(Box::pin(frames)))
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_buffered_upload_does_not_hold_the_lock() {
    let (store, _locks, layer) = locking();
    let app = Router::new()
        .route("/orders/{id}", any(async |body: String| body))
        .layer(layer);
    let uploading = async { text(send(&app, upload("/orders/1")).await).await };
    let meanwhile = async {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert_eq!(store.asked(), 0);
    };
    let (body, ()) = tokio::join!(uploading, meanwhile);
    assert_eq!(body, "1234512345");
    assert_eq!(store.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_upload_over_the_limit_is_413_and_never_locks() {
    let (store, _locks, layer) = locking();
    let app = orders().layer(layer).layer(DefaultBodyLimit::max(9));
    let (status, problem) = problem(send(&app, upload("/orders/1")).await).await;
    assert_eq!(
        (status.as_u16(), &problem["type"]),
        (413, &"body-too-large".into())
    );
    let known = Request::put("/orders/1")
        .body(Body::from("1234567890"))
        .unwrap();
    assert_eq!(send(&app, known).await.status(), 413);
    let fits = Request::put("/orders/1")
        .body(Body::from("123456789"))
        .unwrap();
    assert_eq!(send(&app, fits).await.status(), 200);
    assert_eq!(store.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_breaks_off_is_400_and_never_locks() {
    let (store, _locks, layer) = locking();
    let app = orders().layer(layer).layer(DefaultBodyLimit::max(9));
    let broken = futures_util::stream::iter([Ok("123"), Err(std::io::Error::other("gone"))]);
    let request = Request::put("/orders/1")
        .body(Body::from_stream(broken))
        .unwrap();
    let (status, problem) = problem(send(&app, request).await).await;
    assert_eq!(
        (status.as_u16(), &problem["type"]),
        (400, &"body-unreadable".into())
    );
    assert_eq!(store.asked(), 0);
}

/// Each setter refuses, so that the program ends before it serves, wherever the layer is mounted.
#[test]
fn a_wrong_setting_is_refused_by_its_setter() {
    type Change = fn(DistributedLockLayer) -> DistributedLockLayer;
    let cases: [(Change, &str); 4] = [
        (
            |l| l.lease(Lease::Fixed(Duration::from_millis(9))),
            "the lease is too short",
        ),
        (
            |l| l.max_hold(Duration::ZERO),
            "the longest hold is too short",
        ),
        (
            |l| l.mode(LockMode::Read).fenced(),
            "`fenced` needs an exclusive mode",
        ),
        (
            |l| l.fenced().mode(LockMode::permits(2)),
            "`fenced` needs an exclusive mode",
        ),
    ];
    for (change, reason) in cases {
        let (_store, _locks, layer) = locking();
        let refused = catch_unwind(AssertUnwindSafe(|| drop(change(layer))));
        let panic = refused.expect_err(reason);
        let told = panic.downcast_ref::<String>().expect("a text");
        assert!(told.contains(reason), "{told}");
    }
}

/// The layer needs no other settings for it.
#[tokio::test(start_paused = true)]
async fn on_a_store_without_read_write_locks_reads_exclude_each_other_too() {
    let store = LimitedStore::new(Capabilities::new([LockMode::Reentrant]));
    let app = slow_orders().layer(DistributedLockLayer::new(store));
    let read = async || send(&app, request("GET", "/orders/1")).await;
    let began = Instant::now();
    let (one, other) = tokio::join!(read(), read());
    assert_eq!(
        (one.status(), other.status()),
        (StatusCode::OK, StatusCode::OK)
    );
    assert!(began.elapsed() >= Duration::from_secs(2));
}

/// Their locks are exclusive, and their methods still say that they only read.
#[tokio::test(start_paused = true)]
async fn on_a_store_without_read_write_locks_reads_have_their_policy() {
    let store = TestStore::limited(Capabilities::new([LockMode::Reentrant]));
    let layer = DistributedLockLayer::new(store.clone());
    let ending = {
        let store = store.clone();
        async move || store.unplug(true)
    };
    let ended = Router::new().route("/orders/{id}", any(ending));
    let ended = ended.layer(layer.clone());
    let served = async |method, status| {
        store.unplug(false);
        let answer = send(&ended, request(method, "/orders/1")).await;
        assert_eq!(answer.status(), status, "{method}");
        store.unplug(false);
        settle().await;
    };
    served("GET", 200).await;
    served("PUT", 500).await;
    store.unplug(true);
    let app = orders().layer(layer.reads(reads(OnUnavailable::Proceed)));
    let read = send(&app, request("GET", "/orders/2")).await;
    assert_eq!(text(read).await, "unlocked");
    assert_eq!(put(&app, "/orders/2").await.status(), 503);
}

#[test]
fn settings_may_come_in_any_order() {
    let (_store, _locks, layer) = locking();
    let _ = layer.clone().fenced().mode(LockMode::Fair);
    let _ = layer
        .release_on(ReleaseOn::BodyEnd)
        .lease(Lease::Fixed(Duration::from_secs(5)));
}

/// Unlocked requests have no confirmation, whatever is asked of the locked ones.
#[tokio::test(start_paused = true)]
async fn what_goes_on_unlocked_needs_no_confirmation() {
    let (store, _locks, layer) = locking();
    let layer = layer
        .confirm(Confirm::Strict)
        .on_unavailable(OnUnavailable::Proceed);
    let app = orders().layer(layer);
    store.unplug(true);
    assert_eq!(text(put(&app, "/orders/1").await).await, "unlocked");
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_hangs_frees_its_lock_after_the_longest_hold() {
    let (store, _locks, layer) = locking();
    let app = Router::new()
        .route("/orders/{id}", any(std::future::pending::<()>))
        .layer(
            layer
                .max_hold(Duration::from_secs(60))
                .on_lost(tower_distributed_lock::OnLost::Continue),
        );
    let hanging = tokio::spawn(async move { put(&app, "/orders/1").await });
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert!(!store.is_free());
    tokio::time::sleep(Duration::from_secs(2)).await;
    settle().await;
    assert!(store.is_free());
    hanging.abort();
}
