//! Ending a hold or an attempt.

use std::sync::Arc;
use std::time::Duration;

use tower_distributed_lock::error::StoreErrorKind::{Transient, Unreachable};
use tower_distributed_lock::lock::Hold;
use tower_distributed_lock::store::{Attempt, HoldStatus, LockStore, LockStoreExt, Released};

use crate::QuorumStore;
use crate::ballot::{Vote, Votes, most_answered};
use crate::ledger::{Entry, IS_HELD, Left, Proof};

impl<S: LockStore> QuorumStore<S> {
    /// Releases everywhere. A release that too few stores answered may be repeated: what they said is kept.
    pub(crate) async fn release_majority(&self, hold: &Hold) -> Vote<Released> {
        let entry = self.entry(hold, IS_HELD, Duration::ZERO);
        let mut ballot =
            self.ballot(|quorum, at| quorum.release_in(at, hold.clone(), entry.clone()));
        let decide = |votes: &Votes<Released>| {
            let carried = |_, proof| (proof == Proof::Released).then_some(HoldStatus::Held);
            let status = entry.known().unbroken(carried)?;
            // As many as any of the stores has woken.
            let notified = votes.iter().flatten().flatten().map(|vote| vote.notified);
            Some(Released::new(status, notified.max().unwrap_or_default()))
        };
        let released = ballot.decision(self.deadline(None), true, decide).await;
        // A release that is not decided is tried again by the caller.
        if released.is_ok() {
            entry.known().decide(Left::Nothing, |_| false);
        }
        // It names the hold where it has to be withdrawn.
        let attempt = Attempt::new(hold.clone(), Duration::ZERO).in_line(false);
        self.settle(ballot, &attempt, &entry);
        released
    }

    async fn release_in(self, at: usize, hold: Hold, entry: Arc<Entry>) -> Vote<Released> {
        let mut left = entry.left[at].lock().await;
        let before = entry.known().proofs[at];
        if !matches!(before, Proof::Carries | Proof::Unsure) {
            // Nothing that counts is there. The rest is withdrawn.
            return Ok(HoldStatus::Gone.into());
        }
        let answer = self.shared.stores[at].release_one(&hold).await;
        let status = answer.as_ref().map(|released| released.status);
        if let Ok(HoldStatus::Held | HoldStatus::Gone) = status {
            *left = Left::Nothing;
        }
        let proof = &mut entry.known().proofs[at];
        *proof = match status {
            // The hold was given up meanwhile.
            _ if *proof == Proof::Absent => Proof::Absent,
            Ok(HoldStatus::Held) => Proof::Released,
            // An earlier release may have ended an unsure one.
            Ok(HoldStatus::Gone) if before == Proof::Carries => Proof::Absent,
            Err(error) if matches!(error.kind(), Unreachable | Transient) => before,
            _ => Proof::Unsure,
        };
        answer
    }

    /// Withdraws everywhere.
    pub(crate) async fn withdraw_majority(&self, attempt: Attempt, unanswered: bool) -> Vote<()> {
        let entry = self.entry(&attempt.hold, IS_HELD, attempt.lease);
        entry.known().decide(Left::Nothing, |_| false);
        let mut ballot = self.clearing(&attempt, &entry, unanswered);
        let deadline = self.deadline(None);
        let withdrawn = ballot.decision(deadline, true, most_answered).await;
        self.shared.running.spawn(ballot.rest());
        withdrawn
    }
}
