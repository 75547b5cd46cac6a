//! The tarpit of the guide, which this file has word for word.

use std::time::Duration;

use axum::response::Response;
use tokio::sync::Semaphore;
use tower_distributed_lock::{Rejection, RejectionKind};

/// For `axum::middleware::map_response(tarpit)`.
async fn tarpit(response: Response) -> Response {
    static PLACES: Semaphore = Semaphore::const_new(1_000);
    let kind = response.extensions().get().map(Rejection::kind);
    if kind == Some(RejectionKind::Overloaded)
        && let Ok(_place) = PLACES.try_acquire()
    {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    response
}

mod tests {
    use tokio::time::Instant;
    use tower_distributed_lock::LockClient;

    use super::super::{ORDER, SECOND, by_id};
    use super::*;
    use crate::layer::{locking, put, settle};
    use crate::support::project::read;

    #[test]
    fn it_is_the_one_of_the_guide() {
        let (_, rest) = include_str!("tarpit.rs").split_once("\n\n").unwrap();
        let (tarpit, _) = rest.split_once("\nmod tests").unwrap();
        let page = read("docs/guide/waiting.md");
        assert!(page.contains(&format!("```rust\n{tarpit}```")), "{tarpit}");
    }

    #[tokio::test(start_paused = true)]
    async fn it_delays_refusals_for_overload_and_nothing_else() {
        let (store, _locks, layer) = locking();
        let app = by_id(layer.max_waiters(1).wait(2 * SECOND));
        let app = app.layer(axum::middleware::map_response(tarpit));
        let held = LockClient::new(store);
        let held = held.lock(ORDER.id(1)).await.expect("free");
        let took = async |path: &str| {
            let began = Instant::now();
            (put(&app, path).await.status().as_u16(), began.elapsed())
        };
        let (_asks, _waits) = {
            let waiting = || {
                let app = app.clone();
                tokio::spawn(async move { put(&app, "/orders/1").await.status() })
            };
            (waiting(), waiting())
        };
        settle().await;
        assert_eq!(took("/orders/1").await, (503, SECOND / 2));
        assert_eq!(took("/orders/2").await, (200, SECOND));
        held.release().await.expect("held");
    }
}
