//! A request that is polled once, and never again: it delays no other, in its process or another.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use super::*;

type Acquiring = Pin<Box<dyn Future<Output = Result<LockGuard, LockError>> + Send>>;

/// The longest that the others wait for a key that is free: a poll, and the time in which the store finds that a waiter is dead.
const SOON: Duration = WAITER_LIVENESS.saturating_add(Duration::from_secs(3));

/// Polls a request once. It must wait.
async fn polled_once(request: LockRequest) -> Acquiring {
    let mut acquiring = request.into_future();
    let polled = poll_fn(|context| Poll::Ready(acquiring.as_mut().poll(context))).await;
    assert!(polled.is_pending(), "it did not have to wait: {polled:?}");
    acquiring
}

/// A task that waits for another future while it keeps this one, as `select!` with a borrowed future and `buffered` do.
pub async fn a_request_that_is_not_polled_delays_no_other(env: &Harness) {
    for next in [&env.here, &env.elsewhere] {
        let holder = env.process().await.rival().await.unwrap();
        let unpolled = polled_once(env.here.request()).await;
        sleep(env.moment).await;
        let waiting = tokio::spawn(next.rival().wait(SOON * 2).acquire());
        sleep(env.moment).await;
        holder.release().await.unwrap();
        let granted = timeout(SOON, waiting).await.expect("it is free");
        granted.unwrap().unwrap().release().await.unwrap();
        // Nor does it delay one that does not wait.
        let tries = async {
            loop {
                match next.rival().wait(Duration::ZERO).await {
                    Err(LockError::Busy { .. }) => sleep(env.moment).await,
                    granted => break granted,
                }
            }
        };
        let granted = timeout(SOON, tries).await.expect("it is free");
        granted.unwrap().release().await.unwrap();
        drop(unpolled);
    }
}

/// It gets the key, and does not notice.
pub async fn a_grant_that_is_not_noticed_goes_to_the_next(env: &Harness) {
    for next in [&env.here, &env.elsewhere] {
        let holder = env.here.rival().await.unwrap();
        let unpolled = polled_once(env.here.request()).await;
        sleep(env.moment).await;
        holder.release().await.unwrap();
        sleep(env.moment).await;
        let granted = timeout(SOON, next.rival().wait(SOON * 2)).await;
        let granted = granted.expect("it goes to the next").unwrap();
        granted.release().await.unwrap();
        // It takes its place again when it is polled.
        let late = timeout(SOON, unpolled).await.expect("it is free").unwrap();
        late.release().await.unwrap();
    }
}
