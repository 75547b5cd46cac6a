//! Releasing a hold.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::QuorumStore;
use super::hold::{Epoch, StoreHold};
use super::majority::{Conclusion, MajorityCall, Vote, Votes, answered};
use super::members::Members;
use crate::lock::Hold;
use crate::store::{Attempt, HoldStatus, LockStore, LockStoreExt, Released};

impl<S: LockStore> QuorumStore<S> {
    /// Releases everywhere. A try that no majority answered may be repeated: what the stores said is remembered.
    pub(super) async fn release_majority(&self, name: &Hold) -> Vote<Released> {
        // It names the hold where the release has to be tried again.
        let of = self.given_up(Attempt::new(name.clone(), Duration::ZERO).in_line(false));
        let (epoch, until) = (of.hold.lock().end(), self.deadline());
        let ask = |at: StoreHold<S>, call| at.release(call, epoch, until);
        let majority = self.majority_count();
        let decide = |votes: &Votes<Released>| {
            let status = of.hold.lock().released(epoch, majority)?;
            // As many as any of the stores has woken.
            let notified = votes.iter().flatten().flatten().map(|vote| vote.notified);
            let released = Released::new(status, notified.max().unwrap_or_default());
            Some((released, failures(votes)))
        };
        let has_effect = |votes: &Votes<Released>| answered(votes) > 0;
        let decision = self.majority(&of, until, ask, decide, has_effect);
        let (released, failed) = decision.await?;
        of.hold.lock().retire(epoch);
        self.undo_in(&of, failed);
        Ok(released)
    }
}

impl<S: LockStore> StoreHold<S> {
    async fn release(self, call: Arc<MajorityCall<Released>>, epoch: Epoch, until: Instant) {
        let earlier = self.of.hold.lock().ended(epoch, self.at);
        let answer = match earlier {
            Some(status) => Ok(status.into()),
            None => {
                let released = self.store().release_one(&self.of.attempt.hold);
                let answer = self.quorum.timed(self.at, until, released).await;
                self.of.hold.lock().note_release(epoch, self.at, &answer);
                answer
            }
        };
        let failed = has_failed(&answer);
        // An undecided release is tried again.
        if call.cast(self.at, answer) == Some(Conclusion::Majority) && failed {
            self.undo().await;
        }
    }
}

fn failures(votes: &Votes<Released>) -> Members {
    let failed = |&store: &usize| votes[store].as_ref().is_some_and(has_failed);
    (0..votes.len()).filter(failed).collect()
}

/// Whether the store may still carry the hold.
fn has_failed(vote: &Vote<Released>) -> bool {
    let status = vote.as_ref().map(|released| released.status);
    !matches!(status, Ok(HoldStatus::Held | HoldStatus::Gone))
}
