//! The limits of a lock that an extractor takes: those of a layer, unless the program has its own.

use std::time::Duration;

use axum::Router;
use axum::extract::{FromRequestParts, Path};
use axum::routing::any;
use bytes::Bytes;
use http::Request;
use serde::Deserialize;
use tokio::time::Instant;
use tower_distributed_lock::extract::{Lockable, Locked};
use tower_distributed_lock::{Lease, LockClient, LockRequest, MemoryStore};

use super::uploads::dribbling;
use super::{put, send, settle};

const SECOND: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
struct Unlimited(String);

impl Lockable for Unlimited {
    fn lock(&self, locks: &LockClient) -> LockRequest {
        locks.lock(&*self.0)
    }
}

#[derive(Deserialize)]
struct Limited(String);

impl Lockable for Limited {
    fn lock(&self, locks: &LockClient) -> LockRequest {
        let request = locks.lock(&*self.0).wait(20 * SECOND);
        request.max_hold(400 * SECOND)
    }
}

#[derive(Deserialize)]
struct Long(String);

impl Lockable for Long {
    fn lock(&self, locks: &LockClient) -> LockRequest {
        let request = locks.lock(&*self.0).wait(20 * SECOND);
        request.lease(Lease::Renewed(400 * SECOND))
    }
}

/// How long a second request waits while the first one reads a slow body under the lock, and when the key is free.
async fn refused_and_freed<T>() -> (u64, u64)
where
    Path<T>: FromRequestParts<LockClient> + Lockable + Send,
    T: Send + 'static,
{
    let locks = LockClient::new(MemoryStore::new());
    let read = async |_: Locked<Path<T>>, _: Bytes| {};
    let app = Router::new().route("/{name}", any(read));
    let app = app.with_state(locks.clone());
    let began = Instant::now();
    let slow = Request::put("/a").body(dribbling("x")).unwrap();
    let slow = tokio::spawn({
        let app = app.clone();
        async move { send(&app, slow).await }
    });
    settle().await;
    assert_eq!(put(&app, "/a").await.status(), 423);
    let refused = began.elapsed();
    let free = locks.lock("a").wait(1_000 * SECOND).await.unwrap();
    free.release().await.unwrap();
    slow.abort();
    (refused.as_secs(), began.elapsed().as_secs())
}

#[tokio::test(start_paused = true)]
async fn a_slow_body_behind_an_extractor_holds_the_key_no_longer_than_in_a_layer() {
    for ((refused, freed), wait, hold) in [
        (refused_and_freed::<Unlimited>().await, 10, 300),
        (refused_and_freed::<Limited>().await, 20, 400),
        (refused_and_freed::<Long>().await, 20, 400),
    ] {
        assert_eq!(refused, wait);
        assert!((hold - 3..=hold + 3).contains(&freed), "{hold}: {freed}");
    }
}
