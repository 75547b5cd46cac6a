//! A place in the queue.

#[cfg(test)]
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Decision, Queues};
use crate::error::LockError;
#[cfg(test)]
use crate::exploration::{self, Mutant};
use crate::lock::{LockKey, LockMode};

/// A place in the queue. It resolves when the request gets a share or its turn. If it is dropped before, the request
/// leaves the queue; if it is dropped afterwards, the share or the turn passes to the next request.
pub(crate) struct Queued {
    pub(super) queues: Arc<Queues>,
    pub(super) key: LockKey,
    pub(super) mode: LockMode,
    pub(super) ticket: u64,
    pub(super) since: Instant,
    pub(super) outcome: oneshot::Receiver<Result<Decision, LockError>>,
}

impl Queued {
    /// Looks whether work that this process has left elsewhere keeps the request waiting: a runtime that has ended, or is not
    /// driven, may have the release of the hold before it. The work continues here, or does not keep the turn.
    pub(crate) fn look(&self) {
        self.queues.background.start_stranded();
        let at = self.queues.at(Instant::now());
        let effect = self
            .queues
            .with(&self.key, |state| state.pass_overdue_turn(self.mode, at));
        let effects = effect.into_iter().collect();
        self.queues.apply(&self.key, effects);
        self.check_holder();
    }

    /// Asks whether the store carries the hold of this process: an operator may have broken it, of which the process would learn at the
    /// next renewal only.
    fn check_holder(&self) {
        let held = self.queues.shards.look(&self.key, |state| {
            let mut holds = state.holds();
            holds
                .find(|hold| hold.live.hold.mode.is_handed_over() && !hold.is_detached())
                .map(|hold| hold.live.clone())
        });
        if let Some(live) = held.flatten() {
            let background = self.queues.background.clone();
            self.queues.background.adopt(Box::pin(async move {
                drop(background.check(&live).await);
            }));
        }
    }

    /// `None`: no holder was known during the wait. Otherwise the rest of a holder's lease, if that is known.
    pub(crate) fn known(&self) -> Option<Option<Duration>> {
        let now = Instant::now();
        let known =
            self.queues
                .shards
                .look(&self.key, |state| match state.remaining(self.mode, now) {
                    None => state.has_news_since(self.since).then_some(None),
                    remaining => Some(remaining),
                });
        // No request of this process uses the key now, so the store has answered the head of the queue.
        known.unwrap_or(Some(None))
    }
}

impl Future for Queued {
    type Output = Result<Decision, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = Pin::new(&mut self.outcome).poll(cx);
        outcome
            .map(|outcome| outcome.expect("a waiter gets a decision before its sender is dropped"))
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        if self.outcome.is_terminated() {
            return;
        }
        #[cfg(test)]
        if exploration::has(Mutant::GiftKept) {
            mem::forget(self.outcome.try_recv());
        }
        let (waiter, effects) = self.queues.with(&self.key, |state| {
            let at = self.queues.at(Instant::now());
            state.cancel(self.mode, self.ticket, at)
        });
        // Its waker is code outside this crate, and must not be dropped under the mutex.
        drop(waiter);
        self.queues.apply(&self.key, effects);
        // A decision that arrived meanwhile is dropped with the receiver, and passes to the next request.
    }
}
