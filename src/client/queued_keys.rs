//! The queues of this process in which a request waits.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;

use crate::error::{LockError, StoreError, StoreErrorKind};
#[cfg(test)]
use crate::exploration::{self, Mutant};
use crate::lock::LockKey;
use crate::queue::{Decision, Queued};

/// The queues in which a request waits, one for each key with earlier requests.
///
/// Dropping it leaves all queues. What a queue has given passes to the next request.
#[derive(Default)]
pub(super) struct QueuedKeys<'a> {
    waiting: Vec<(&'a LockKey, Queued)>,
    /// Given by a queue, and not taken yet.
    given: Option<Box<Given<'a>>>,
}

/// What a queue has given.
pub(super) struct Given<'a> {
    pub(super) key: &'a LockKey,
    pub(super) decision: Result<Decision, LockError>,
    /// [`Queued::known`].
    pub(super) known: Option<Option<Duration>>,
}

impl<'a> QueuedKeys<'a> {
    pub(super) fn add(&mut self, key: &'a LockKey, queued: Queued) {
        self.waiting.push((key, queued));
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Waits until any queue has given something; for ever if it waits in none.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what was given stays until it is taken.
    pub(super) async fn given(&mut self) -> Given<'a> {
        self.is_given().await;
        *self.given.take().expect("it was given")
    }

    /// Waits in the same way, and takes nothing.
    pub(super) async fn is_given(&mut self) {
        poll_fn(|cx| self.poll_given(cx)).await;
    }

    /// Takes what was given already.
    pub(super) fn given_by_now(&mut self) -> Option<Given<'a>> {
        self.given().now_or_never()
    }

    /// [`Queued::look`].
    pub(super) fn look(&self) {
        self.waiting.iter().for_each(|(_, queued)| queued.look());
    }

    /// The error after the time-out: others hold the keys, or the store never answered.
    pub(super) fn in_vain(&self) -> LockError {
        let known = self.waiting.iter();
        let known = known.filter_map(|(_, queued)| queued.known());
        match known.reduce(|one, other| one.into_iter().chain(other).min()) {
            Some(retry_after) => LockError::Busy { retry_after },
            None => StoreError::new(
                StoreErrorKind::Unanswered,
                "the store did not answer the request at the head of the queue",
            )
            .into(),
        }
    }

    fn poll_given(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        #[cfg(test)]
        if exploration::has(Mutant::GiftUnseen) {
            return Poll::Pending;
        }
        if self.given.is_some() {
            return Poll::Ready(());
        }
        for index in 0..self.waiting.len() {
            let (key, queued) = &mut self.waiting[index];
            if let Poll::Ready(decision) = Pin::new(queued).poll(cx) {
                let key = *key;
                let (_, queued) = self.waiting.swap_remove(index);
                self.given = Some(Box::new(Given {
                    key,
                    decision,
                    known: queued.known(),
                }));
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }
}

/// Picks the reason with the better prospect: a lease that ends, before a full queue.
pub(super) fn sooner(one: Option<LockError>, other: LockError) -> LockError {
    match (one, other) {
        (Some(LockError::Busy { retry_after: one }), LockError::Busy { retry_after: other }) => {
            LockError::Busy {
                retry_after: one.into_iter().chain(other).min(),
            }
        }
        (Some(LockError::Busy { retry_after }), _) => LockError::Busy { retry_after },
        (_, other) => other,
    }
}
