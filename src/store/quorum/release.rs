//! Releasing a hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::QuorumStore;
use super::hold::Epoch;
use super::majority::{Conclusion, StoreCall, Votes};
use super::members::Members;
use super::vote_count::no_majority;
use crate::error::StoreError;
use crate::lock::Hold;
use crate::store::{Attempt, HoldStatus, LockStore, LockStoreExt, Released};

/// One call of `release`.
struct ReleaseCall {
    epoch: Epoch,
    /// To name the hold where the release has to be tried again.
    attempt: Attempt,
    /// As many as any of the stores has woken.
    notified: AtomicUsize,
    until: Instant,
}

impl<S: LockStore> QuorumStore<S> {
    /// Releases everywhere. A try that no majority answered may be repeated: what the stores said is remembered.
    pub(super) async fn release_majority(&self, name: &Hold) -> Result<Released, StoreError> {
        let hold = self.shared.holds.reopen(name);
        let call = Arc::new(ReleaseCall {
            epoch: hold.end(),
            attempt: Attempt::new(name.clone(), Duration::ZERO).in_line(false),
            notified: AtomicUsize::new(0),
            until: self.deadline(),
        });
        let released = || hold.released(call.epoch, self.majority_count());
        let ask = |place: StoreCall<S, HoldStatus>| place.release(call.clone());
        let decided = |_: &Votes<HoldStatus>| released().is_some();
        let count = |votes: &Votes<HoldStatus>| match released() {
            Some(status) => (Conclusion::Majority, (Ok(status), failures(votes))),
            None => {
                let answered = votes.iter().flatten().any(Result::is_ok);
                let error = no_majority(self.majority_count(), votes, answered);
                (Conclusion::NoMajority, (Err(error), Members::default()))
            }
        };
        let released = self.majority(&hold, call.until, ask, decided, count);
        let (status, failed) = released.await;
        let status = status?;
        hold.retire(call.epoch);
        self.undo_in(&call.attempt, &hold, failed);
        let notified = call.notified.load(Ordering::Relaxed);
        Ok(Released::new(status, notified))
    }
}

impl<S: LockStore> StoreCall<S, HoldStatus> {
    async fn release(self, release: Arc<ReleaseCall>) {
        let Self {
            quorum,
            hold,
            call,
            store,
        } = self;
        let ReleaseCall { epoch, attempt, .. } = &*release;
        let answer = match hold.ended(*epoch, store) {
            Some(status) => Ok(status),
            None => {
                let released = quorum.shared.stores[store].release_one(&attempt.hold);
                let answer = quorum.heard(store, release.until, released).await;
                let answer = answer.map(|released| {
                    let notified = &release.notified;
                    notified.fetch_max(released.notified, Ordering::Relaxed);
                    released.status
                });
                hold.note_release(*epoch, store, &answer);
                answer
            }
        };
        let failed = !matches!(answer, Ok(HoldStatus::Held | HoldStatus::Gone));
        // An undecided release is tried again.
        if call.cast(store, answer) == Some(Conclusion::Majority) && failed {
            quorum.undo(attempt, &hold, store).await;
        }
    }
}

fn failures<T>(votes: &Votes<T>) -> Members {
    let failed = |&store: &usize| matches!(votes[store], Some(Err(_)));
    (0..votes.len()).filter(failed).collect()
}
