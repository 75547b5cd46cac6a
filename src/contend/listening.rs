//! How a task listens for its key.

use std::future::pending;
use std::sync::Arc;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::error::StoreError;
use crate::limits::POLL;
use crate::release::Core;
use crate::store::{Attempt, Wakeups};

/// The subscriptions of one task, one after the other. None begins while another is under way, nor within a poll's time of the last
/// one: a store may end each at once, or refuse it.
#[derive(Default)]
pub(super) struct Listening {
    wakeups: Option<Wakeups>,
    /// The answer to one that goes on in the background while the task asks.
    under_way: Option<oneshot::Receiver<Result<Wakeups, StoreError>>>,
    /// When the store last answered.
    answered: Option<Instant>,
}

impl Listening {
    pub(super) fn is_on(&self) -> bool {
        self.wakeups.is_some()
    }

    /// The next subscription need not wait: the last one has served its purpose.
    pub(super) fn granted(&mut self) {
        self.answered = None;
    }

    /// Subscribes, unless there is a subscription that lasts, and waits for that until `until`, or until there is other work. Without
    /// wake-ups the task polls.
    ///
    /// Returns whether to ask again: something may have happened before the new subscription, and the former one may have been
    /// woken before its end.
    pub(super) async fn begin(
        &mut self,
        core: &Arc<Core>,
        attempt: &Attempt,
        until: Instant,
        work: &Notify,
    ) -> bool {
        if self
            .wakeups
            .as_ref()
            .is_some_and(|wakeups| !wakeups.is_over())
        {
            return false;
        }
        // The end of the former one must not end what the new one has begun.
        let ended = self.wakeups.take().is_some();
        if self.under_way.is_none() {
            if self.answered.is_some_and(|at| at.elapsed() < POLL) {
                return ended;
            }
            let (sender, answer) = oneshot::channel();
            let subscribing = core.store.subscribe(attempt.clone());
            // In the background, because a store may hold something that its next answer needs.
            core.spawner.run(async move {
                drop(sender.send(subscribing.answer().await));
            });
            self.under_way = Some(answer);
        }
        let answer = self.under_way.as_mut().expect("it was begun");
        tokio::select! {
            biased; // without chance, a simulation replays
            answer = answer => self.answered(answer.ok()) || ended,
            () = sleep_until(until) => ended,
            () = work.notified() => ended,
        }
    }

    /// Waits until something may have happened: a wake-up, the end of the subscription, or a new one.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(super) async fn woken(&mut self) {
        if let Some(answer) = &mut self.under_way {
            let answer = answer.await.ok();
            if self.answered(answer) {
                return;
            }
        }
        match &mut self.wakeups {
            Some(wakeups) => {
                // If it is over, the task asks, and subscribes again.
                let _lasts = wakeups.wait().await;
            }
            None => pending().await,
        }
    }

    /// The store has answered. Returns whether there is a subscription now.
    fn answered(&mut self, answer: Option<Result<Wakeups, StoreError>>) -> bool {
        self.under_way = None;
        self.answered = Some(Instant::now());
        match answer {
            Some(Ok(wakeups)) => self.wakeups = Some(wakeups),
            Some(Err(error)) => {
                tracing::debug!(%error, "could not subscribe, polling instead");
            }
            None => {}
        }
        self.wakeups.is_some()
    }
}
