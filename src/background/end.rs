//! The end of holds in the store: one by itself, or several together.

use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all};

use super::{Background, HoldRelease};
use crate::cleanup::{self, Driven, PaceSlot};
use crate::error::{LockError, worst};
use crate::store::{Record, Released};
use crate::watchdog::LiveHold;

/// A hold whose last share has ended, and what waits for its end in the store. It is dropped at the end.
pub(crate) trait EndOfHold: Unpin + Send + 'static {
    fn live(&self) -> &Arc<LiveHold>;

    /// That of its client.
    fn background(&self) -> &Background;

    /// The store has given its first answer, which may be an error.
    fn asked(&mut self, released: Released);
}

impl Background {
    /// Ends a hold: stops its renewal, and releases it in the store. Returns whether it was held until then.
    ///
    /// A `record` is stored in the same step.
    ///
    /// Without a record, a hold within its [minimum](LiveHold::minimum) is left in the store until then.
    pub(crate) fn end<E: EndOfHold>(
        &self,
        end: E,
        record: Option<Record>,
    ) -> Driven<HoldRelease<E>> {
        // Counted first, so that a shutdown that finds no hold finds the count.
        let unfinished = self.handle.tasks.begin();
        let held = self.begin_release(end.live());
        if record.is_none()
            && let Some(until) = end.live().minimum()
        {
            self.release_at(end.live(), until);
            return match held {
                true => {
                    let left = HoldRelease::boxed(self.clone().leave(end.live().clone()));
                    Driven::new(unfinished, left)
                }
                false => Driven::done(Err(LockError::Lost)).of_lost(true),
            };
        }
        // A lost hold is released as well, because the store may still carry it.
        let record = record.filter(|_| held);
        if let Some(store) = self.handle.store.at_once() {
            // No other release has to wait for it, so it needs no slot.
            let released = self.release_at_once(store, end, record);
            return Driven::done(if held { released } else { Err(LockError::Lost) });
        }
        let release = HoldRelease::new(end, record, held);
        Driven::new(unfinished, release).of_lost(!held)
    }

    /// Ends several holds together, those of one partition in few questions. Returns whether all were held until then.
    pub(crate) fn end_all<E: EndOfHold>(
        &self,
        ends: impl IntoIterator<Item = E>,
    ) -> Driven<BoxFuture<'static, Result<(), LockError>>> {
        let unfinished = self.handle.tasks.begin();
        let (mut left, mut rest) = (Vec::new(), Vec::new());
        let mut held = true;
        for end in ends {
            held &= self.begin_release(end.live());
            match end.live().minimum() {
                Some(until) => {
                    self.release_at(end.live(), until);
                    left.push(self.clone().leave(end.live().clone()));
                }
                None => rest.push(end),
            }
        }
        let store = &self.handle.store;
        let partitions = store.by_partition(rest, |end: &E| &end.live().hold.key);
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
        Driven::boxed(unfinished, release).of_lost(!held)
    }

    async fn end_in<E: EndOfHold>(
        &self,
        partition: u16,
        mut ends: Vec<E>,
    ) -> Vec<Result<(), LockError>> {
        let mut slot = match cleanup::is_in_background() {
            true => self.slot(partition).await,
            false => None,
        };
        let mut unasked = ends.len();
        let lives = ends.iter().map(|end| end.live().clone()).collect();
        let answered = |place: usize, released| {
            unasked -= 1;
            if unasked == 0 {
                slot.take();
            }
            ends[place].asked(released);
        };
        let released = self.clone().release_many(lives, answered).await;
        drop(ends);
        released
    }

    /// A slot among the releases that no caller waits for.
    pub(super) async fn slot(&self, partition: u16) -> Option<PaceSlot> {
        self.handle.pace.enter(partition).await
    }

    pub(super) fn partition(&self, live: &LiveHold) -> u16 {
        let partition = self.handle.store.partition(&live.hold.key);
        partition.unwrap_or_default()
    }

    /// Stops the renewal before a release. Returns `false` if the hold is lost already.
    pub(crate) fn begin_release(&self, live: &Arc<LiveHold>) -> bool {
        self.handle.watchdog.end(live)
    }
}
