//! How an attempt subscribes.

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::LockClient;
use super::wait::POLL;
use crate::error::StoreError;
use crate::store::{Attempt, Wakeups};

/// The subscriptions of one attempt, one after the other. None begins while another is under way, nor within a poll's time of the
/// last one: a store may end each at once, or refuse it.
#[derive(Default)]
pub(super) struct Subscribing {
    /// The answer to one that goes on in the background while the request asks.
    under_way: Option<oneshot::Receiver<Result<Wakeups, StoreError>>>,
    /// When the store last answered.
    answered: Option<Instant>,
}

impl Subscribing {
    /// Subscribes in place of `wakeups`, which are over or do not wake the attempt, and waits for that until `until`. Without
    /// wake-ups the request polls.
    ///
    /// Returns whether it is to ask again: something may have happened before the new subscription, and the former one may
    /// have been woken before its end.
    pub(super) async fn renew(
        &mut self,
        client: &LockClient,
        attempt: Attempt,
        wakeups: &mut Option<Wakeups>,
        until: Instant,
    ) -> bool {
        // The end of the former one must not end what the new one has begun.
        let ended = wakeups.take().is_some();
        if self.answered.is_some_and(|at| at.elapsed() < POLL) {
            return ended;
        }
        let called = attempt.is_called();
        let under_way = match &mut self.under_way {
            Some(under_way) => under_way,
            None => {
                let (sender, answer) = oneshot::channel();
                let subscribing = client.inner.store.clone().subscribe(attempt);
                let background = client.inner.queues.background();
                let mut subscribing = background.non_cancellable(Box::pin(async move {
                    drop(sender.send(subscribing.await));
                }));
                // Dropped, it goes on in the background: a store may hold something that its next answer needs.
                _ = timeout_at(until, &mut subscribing).await;
                self.under_way.insert(answer)
            }
        };
        let Ok(answer) = timeout_at(until, under_way).await else {
            return ended;
        };
        self.under_way = None;
        self.answered = Some(Instant::now());
        match answer {
            Ok(Ok(new)) => {
                *wakeups = Some(new.of_called(called));
                true
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "could not subscribe, polling instead");
                ended
            }
            // The store has panicked.
            Err(_) => ended,
        }
    }
}
