//! The end of holds in the store: one by itself, or several together.

use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all};

use super::release::{EndOfHold, Finishing, KeptHold, Tries, answered, leave, release_together};
use super::release_question::ReleaseQuestion;
use super::{Background, HoldRelease};
use crate::cleanup::{self, NonCancellable};
use crate::error::{LockError, worst};
use crate::store::{Record, undecided};
use crate::watchdog::LiveHold;

impl<E: EndOfHold> HoldRelease<E> {
    /// Ends a hold: stops its renewal, and releases it in the store. Returns whether it was held until then.
    ///
    /// A `record` is stored in the same step.
    ///
    /// Without a record, a hold within its [minimum](LiveHold::minimum) is left in the store until then.
    pub(crate) fn begin(end: E, record: Option<Record>) -> Self {
        // Counted first, so that a shutdown that finds no hold finds the count, and until the end is dropped.
        let unfinished = end.background().handle.tasks.begin();
        let mut end = end;
        let background = end.background();
        let is_held = background.begin_release(end.live());
        let minimum = end.live().minimum().filter(|_| record.is_none());
        if let Some(until) = minimum {
            background.release_at(end.live(), until);
            if !is_held {
                return Self::done(Err(LockError::Lost));
            }
            let kept = KeptHold::of(&end);
            // What waits for its end goes on: the key stays taken in the store, and only there.
            drop(end);
            return Self::boxed([], NonCancellable::new(unfinished, Box::pin(leave(kept))));
        }
        // A lost hold is released as well, because the store may still carry it.
        let record = record.filter(|_| is_held);
        let Some(store) = background.handle.store.at_once() else {
            let question = ReleaseQuestion::new(end, record);
            return Self::asks(NonCancellable::new(unfinished, question)).lost_if(!is_held);
        };
        // No other release has to wait for it, so it needs no place.
        let released = store.release_now(&end.live().hold, record.as_ref());
        end.asked(answered(&released));
        // Such a store holds, has no hold, or refuses. It is always reached.
        let result = Tries::default().decided(end.live(), released);
        let result = result.unwrap_or_else(|| Err(undecided().into()));
        end.background().released(end.live(), &result);
        Self::done(result).lost_if(!is_held)
    }
}

impl Background {
    /// Ends several holds together, those of one partition in few questions. Returns whether the store carried all of them until
    /// then; it is no answer about a hold that was lost before.
    pub(crate) fn end_all<E: EndOfHold>(
        self,
        ends: impl IntoIterator<Item = E>,
    ) -> NonCancellable<BoxFuture<'static, Result<(), LockError>>> {
        let unfinished = self.handle.tasks.begin();
        let (mut left, mut rest) = (Vec::new(), Vec::new());
        for end in ends {
            let was_held = self.begin_release(end.live());
            match end.live().minimum() {
                Some(until) => {
                    self.release_at(end.live(), until);
                    left.extend(was_held.then(|| leave(KeptHold::of(&end))));
                }
                None => rest.push(end),
            }
        }
        let store = &self.handle.store;
        let partitions = store.by_partition(rest, |end: &E| &end.live().hold.key);
        let release = async move {
            let releases = partitions.into_iter();
            let releases = releases.map(|(partition, ends)| self.end_in(partition, ends));
            let (released, left) = tokio::join!(join_all(releases), join_all(left));
            worst(released.into_iter().flatten().chain(left))
        };
        NonCancellable::new(unfinished, Box::pin(release))
    }

    /// Releases holds of one partition. Returns an answer for each, in order.
    async fn end_in<E: EndOfHold>(
        &self,
        partition: u16,
        ends: Vec<E>,
    ) -> Vec<Result<(), LockError>> {
        let mut place = match cleanup::is_in_background() {
            true => self.handle.release_limit.enter(partition).await,
            false => None,
        };
        let mut ends: Vec<_> = ends.into_iter().map(Finishing).collect();
        let lives: Vec<_> = ends.iter().map(|end| end.0.live().clone()).collect();
        let mut unasked = ends.len();
        let answered = |index: usize, released| {
            unasked -= 1;
            if unasked == 0 {
                place.take();
            }
            ends[index].0.asked(released);
        };
        let ended = |live: &_, result: &_| self.released(live, result);
        release_together(self.store(), &lives, answered, ended).await
    }

    /// Stops the renewal before a release. Returns `false` if the hold is lost.
    pub(crate) fn begin_release(&self, live: &Arc<LiveHold>) -> bool {
        self.handle.watchdog.end(live)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use futures_util::FutureExt;
    use tokio::time::Instant;
    use uuid::Uuid;

    use super::*;
    use crate::lock::{Hold, HoldId, Lease, LockMode};
    use crate::store::memory::MemoryStore;
    use crate::store::{Released, erase};
    use crate::telemetry::Events;

    /// Stores at its drop whether a shutdown would wait.
    struct Counted {
        background: Background,
        live: Arc<LiveHold>,
        is_counted: Arc<AtomicBool>,
    }

    impl EndOfHold for Counted {
        fn live(&self) -> &Arc<LiveHold> {
            &self.live
        }

        fn background(&self) -> &Background {
            &self.background
        }

        fn asked(&mut self, _: Released) {}
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            let is_counted = self.background.drained().now_or_never().is_none();
            self.is_counted.store(is_counted, Ordering::Relaxed);
        }
    }

    /// A shutdown returns after the key is free in this process, too.
    #[tokio::test(start_paused = true)]
    async fn an_end_is_counted_until_it_is_dropped() {
        let events = Events::default();
        let background = Background::new(erase(MemoryStore::new()), None, events, Box::new(|_| {}));
        let hold = Hold {
            key: "account:42".into(),
            mode: LockMode::Reentrant,
            id: HoldId::new(Uuid::nil(), 1),
        };
        let lease = Duration::from_secs(30);
        let live = LiveHold::new(hold, Lease::Renewed(lease), None, Instant::now(), lease);
        let is_counted = Arc::<AtomicBool>::default();
        let end = Counted {
            background: background.clone(),
            live: Arc::new(live),
            is_counted: is_counted.clone(),
        };
        let released = HoldRelease::begin(end, None).await;
        assert!(matches!(released, Err(LockError::Lost)), "{released:?}");
        assert!(is_counted.load(Ordering::Relaxed));
        assert!(background.drained().now_or_never().is_some());
    }
}
