//! The end of holds in the store: one by itself, or several together.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::OwnedSemaphorePermit;

use super::Background;
use crate::cleanup::{self, Driven};
use crate::error::{LockError, worst};
use crate::store::{Record, Released};
use crate::watchdog::LiveHold;

/// A hold that ends together with others: see [`Background::end`].
pub(crate) struct End<A, D> {
    pub(crate) live: Arc<LiveHold>,
    pub(crate) asked: A,
    pub(crate) until_done: D,
}

impl Background {
    /// Ends a hold: stops its renewal, and releases it in the store. Returns whether it was held until then.
    ///
    /// A `record` is stored in the same step. `asked` is called with the store's first answer, also if it is an error.
    /// `until_done` is dropped at the end.
    ///
    /// Without a record, a hold within its [minimum](LiveHold::minimum) is left in the store until then, and `asked` is dropped.
    pub(crate) fn end(
        &self,
        live: Arc<LiveHold>,
        record: Option<Record>,
        asked: impl FnOnce(Released) + Send + 'static,
        until_done: impl Send + 'static,
    ) -> Driven<Result<(), LockError>> {
        // Counted first, so that a shutdown that finds no hold finds the count.
        let unfinished = self.handle.tasks.begin();
        let held = self.begin_release(&live);
        if record.is_none()
            && let Some(until) = live.minimum()
        {
            self.release_at(&live, until);
            let left = self.clone().leave(live);
            let left = async move {
                if held {
                    left.await
                } else {
                    Err(LockError::Lost)
                }
            };
            return Driven::counted(unfinished, left).of_lost(!held);
        }
        if let Some(store) = self.handle.store.at_once() {
            // No other release has to wait for it, so it needs no slot.
            let record = record.filter(|_| held);
            let released = self.release_at_once(store, &live, record, asked);
            drop(until_done);
            return Driven::done(if held { released } else { Err(LockError::Lost) });
        }
        let background = self.clone();
        let release = async move {
            let slot = background.slot(|| background.partition(&live)).await;
            // A release without an answer is repeated after growing pauses, and does not block others any more.
            let asked = move |released| {
                drop(slot);
                asked(released);
            };
            // A lost hold is released as well, because the store may still carry it.
            let record = record.filter(|_| held);
            let released = background.release(live, record, asked).await;
            drop(until_done);
            if held { released } else { Err(LockError::Lost) }
        };
        Driven::counted(unfinished, release).of_lost(!held)
    }

    /// Ends several holds together, those of one partition in few questions. Returns whether all were held until then.
    pub(crate) fn end_all<A, D>(
        &self,
        ends: impl IntoIterator<Item = End<A, D>>,
    ) -> Driven<Result<(), LockError>>
    where
        A: FnOnce(Released) + Send + 'static,
        D: Send + 'static,
    {
        let unfinished = self.handle.tasks.begin();
        let (mut left, mut rest) = (Vec::new(), Vec::new());
        let mut held = true;
        for end in ends {
            held &= self.begin_release(&end.live);
            match end.live.minimum() {
                Some(until) => {
                    self.release_at(&end.live, until);
                    left.push(self.clone().leave(end.live));
                }
                None => rest.push(end),
            }
        }
        let store = &self.handle.store;
        let partitions = store.by_partition(rest, |end| &end.live.hold.key);
        let background = self.clone();
        let release = async move {
            let releases = partitions.into_iter();
            let releases = releases.map(|(partition, ends)| background.end_in(partition, ends));
            let (released, left) = tokio::join!(join_all(releases), join_all(left));
            match held {
                true => worst(released.into_iter().flatten().chain(left)),
                false => Err(LockError::Lost),
            }
        };
        Driven::counted(unfinished, release).of_lost(!held)
    }

    async fn end_in<A: FnOnce(Released) + Send, D: Send>(
        &self,
        partition: u16,
        ends: Vec<End<A, D>>,
    ) -> Vec<Result<(), LockError>> {
        let mut slot = self.slot(|| partition).await;
        let mut unasked = ends.len();
        let mut lives = Vec::with_capacity(unasked);
        let mut asked = Vec::with_capacity(unasked);
        let mut until_done = Vec::with_capacity(unasked);
        for end in ends {
            lives.push(end.live);
            asked.push(Some(end.asked));
            until_done.push(end.until_done);
        }
        let answered = |place: usize, released| {
            unasked -= 1;
            if unasked == 0 {
                slot.take();
            }
            if let Some(asked) = asked[place].take() {
                asked(released);
            }
        };
        let released = self.clone().release_many(lives, answered).await;
        drop(until_done);
        released
    }

    /// A slot among the releases that no caller waits for; `None` if a caller waits.
    async fn slot(&self, partition: impl FnOnce() -> u16) -> Option<OwnedSemaphorePermit> {
        match cleanup::is_in_background() {
            true => self.handle.pace.enter(partition()).await,
            false => None,
        }
    }

    fn partition(&self, live: &LiveHold) -> u16 {
        let partition = self.handle.store.partition(&live.hold.key);
        partition.unwrap_or_default()
    }

    /// Stops the renewal before a release. Returns `false` if the hold is lost already.
    pub(crate) fn begin_release(&self, live: &LiveHold) -> bool {
        self.handle.watchdog.end(live)
    }
}
