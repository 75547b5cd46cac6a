//! The `Retry-After` of refused clients.

use std::collections::HashSet;
use std::io;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::any;
use futures_util::future::join_all;
use futures_util::stream;
use http_body_util::BodyExt;
use tokio::time::sleep;
use tower_distributed_lock::ReleaseOn;

use super::{locking, put, request, send, settle};

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

/// An answer to HEAD has no body, and releases its lock before its head.
#[tokio::test(start_paused = true)]
async fn the_time_of_a_body_that_holds_its_lock_counts() {
    const LONG: Duration = Duration::from_secs(8);
    for end in ["read", "broken", "dropped"] {
        let (_store, _locks, layer) = locking();
        let export = async move || {
            Body::from_stream(stream::once(async move {
                sleep(LONG).await;
                match end {
                    "broken" => Err(io::Error::other("broken")),
                    _ => Ok("data"),
                }
            }))
        };
        let layer = layer.release_on(ReleaseOn::BodyEnd).wait(Duration::ZERO);
        let app = Router::new()
            .route("/orders/{id}", any(export))
            .layer(layer);
        let body = put(&app, "/orders/1").await.into_body();
        match end {
            "dropped" => {
                sleep(LONG).await;
                drop(body);
            }
            end => assert_eq!(body.collect().await.is_ok(), end == "read"),
        }
        settle().await;
        let head = send(&app, request("HEAD", "/orders/1")).await;
        assert_eq!(head.status(), 200, "{end}");
        let held = put(&app, "/orders/1").await;
        let refused = put(&app, "/orders/1").await;
        assert_eq!(
            (held.status(), refused.status().as_u16()),
            (http::StatusCode::OK, 423)
        );
        // Seven eighths of eight seconds, and up to as many again.
        let told = seconds(&refused);
        assert!((7..=14).contains(&told), "{end}: {told} s");
    }
}
