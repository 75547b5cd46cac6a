//! Releasing a hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::QuorumStore;
use super::hold::Epoch;
use super::majority::{Conclusion, MajorityCall, Vote, Votes, answered};
use super::members::Members;
use super::store_hold::StoreHold;
use crate::lock::Hold;
use crate::store::{Attempt, HoldStatus, LockStore, LockStoreExt, Released};

/// One call of `release`.
struct ReleaseCall {
    epoch: Epoch,
    /// As many as any of the stores has woken.
    notified: AtomicUsize,
    until: Instant,
}

impl<S: LockStore> QuorumStore<S> {
    /// Releases everywhere. A try that no majority answered may be repeated: what the stores said is remembered.
    pub(super) async fn release_majority(&self, name: &Hold) -> Vote<Released> {
        // It names the hold where the release has to be tried again.
        let of = self.given_up(Attempt::new(name.clone(), Duration::ZERO).in_line(false));
        let release = Arc::new(ReleaseCall {
            epoch: of.hold.lock().end(),
            notified: AtomicUsize::new(0),
            until: self.deadline(),
        });
        let ask = |at: StoreHold<S>, call| at.release(call, release.clone());
        let majority = self.majority_count();
        let decide = |votes: &Votes<HoldStatus>| {
            let status = of.hold.lock().released(release.epoch, majority)?;
            Some((status, failures(votes)))
        };
        let has_effect = |votes: &Votes<HoldStatus>| answered(votes) > 0;
        let decision = self.majority(&of, release.until, ask, decide, has_effect);
        let (status, failed) = decision.await?;
        of.hold.lock().retire(release.epoch);
        self.undo_in(&of, failed);
        let notified = release.notified.load(Ordering::Relaxed);
        Ok(Released::new(status, notified))
    }
}

impl<S: LockStore> StoreHold<S> {
    async fn release(self, call: Arc<MajorityCall<HoldStatus>>, release: Arc<ReleaseCall>) {
        let earlier = self.of.hold.lock().ended(release.epoch, self.at);
        let answer = match earlier {
            Some(status) => Ok(status),
            None => self.release_once(&release).await,
        };
        let failed = has_failed(&answer);
        // An undecided release is tried again.
        if call.cast(self.at, answer) == Some(Conclusion::Majority) && failed {
            self.undo().await;
        }
    }

    async fn release_once(&self, release: &ReleaseCall) -> Vote<HoldStatus> {
        let released = self.store().release_one(&self.of.attempt.hold);
        let answer = self.quorum.timed(self.at, release.until, released).await;
        let answer = answer.map(|released| {
            let notified = released.notified;
            release.notified.fetch_max(notified, Ordering::Relaxed);
            released.status
        });
        let mut hold = self.of.hold.lock();
        hold.note_release(release.epoch, self.at, &answer);
        answer
    }
}

fn failures(votes: &Votes<HoldStatus>) -> Members {
    let failed = |&store: &usize| votes[store].as_ref().is_some_and(has_failed);
    (0..votes.len()).filter(failed).collect()
}

/// Whether the store may still carry the hold.
fn has_failed(vote: &Vote<HoldStatus>) -> bool {
    !matches!(vote, Ok(HoldStatus::Held | HoldStatus::Gone))
}
