//! The `Retry-After` of refused clients.

use std::collections::HashSet;
use std::time::Duration;

use axum::Router;
use axum::response::Response;
use axum::routing::any;
use futures_util::future::join_all;

use super::{locking, put, settle};

fn seconds(response: &Response) -> u64 {
    response.headers()["retry-after"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap()
}

fn held_for(held: Duration) -> Router {
    Router::new().route(
        "/orders/{id}",
        any(async move || tokio::time::sleep(held).await),
    )
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_held_for_milliseconds_is_soon_free() {
    let (_store, _locks, layer) = locking();
    let app = held_for(Duration::from_millis(50)).layer(layer.wait(Duration::ZERO));
    for _ in 0..10 {
        assert_eq!(put(&app, "/orders/1").await.status(), 200);
    }
    let told: HashSet<_> = {
        let mut told = HashSet::new();
        for _ in 0..50 {
            let (served, refused) = tokio::join!(put(&app, "/orders/1"), async {
                tokio::time::sleep(Duration::from_millis(1)).await;
                put(&app, "/orders/1").await
            });
            assert_eq!(
                (served.status().as_u16(), refused.status().as_u16()),
                (200, 423)
            );
            told.insert(seconds(&refused));
        }
        told
    };
    assert!(told.iter().all(|seconds| *seconds <= 3), "{told:?}");
    assert!(told.len() > 1, "all would come back at once: {told:?}");
}

#[tokio::test(start_paused = true)]
async fn requests_beyond_the_queue_are_spread_over_the_time_that_it_takes() {
    let (_store, _locks, layer) = locking();
    let app = held_for(Duration::from_millis(100)).layer(layer.max_waiters(50));
    assert_eq!(put(&app, "/orders/1").await.status(), 200);
    let crowd = join_all((0..200).map(|_| put(&app, "/orders/1")));
    let answers = crowd.await;
    let told: Vec<_> = answers
        .iter()
        .filter(|answer| answer.status() == 503)
        .map(seconds)
        .collect();
    assert!(told.len() >= 100, "{}", told.len());
    // 50 waiters of 100 ms each: five seconds, and up to as many again.
    assert!(
        told.iter().all(|seconds| (4..=11).contains(seconds)),
        "{told:?}"
    );
    assert!(told.iter().collect::<HashSet<_>>().len() >= 4, "{told:?}");
    settle().await;
}
