//! Ending a hold or an attempt.

use std::sync::Arc;
use std::time::Duration;

use tower_distributed_lock::error::{StoreError, StoreErrorKind};
use tower_distributed_lock::lock::Hold;
use tower_distributed_lock::store::{Attempt, HoldStatus, LockStore, LockStoreExt, Released};

use crate::QuorumStore;
use crate::ballot::{Vote, Votes, most_answered};
use crate::ledger::{Entry, Left, Proof};

impl<S: LockStore> QuorumStore<S> {
    /// Releases everywhere. A release that too few stores answered may be repeated: what they said is kept.
    pub(crate) async fn release_majority(&self, hold: &Hold) -> Vote<Released> {
        let entry = self.entry(hold, true, Duration::ZERO);
        let mut ballot =
            self.ballot(|quorum, at| quorum.release_in(at, hold.clone(), entry.clone()));
        let decide = |votes: &Votes<Released>| {
            let carried = |_, proof| (proof == Proof::Released).then_some(HoldStatus::Held);
            let status = entry.unbroken(carried)?;
            // As many as any of the stores has woken.
            let notified = votes.iter().flatten().flatten().map(|vote| vote.notified);
            Some(Released::new(status, notified.max().unwrap_or_default()))
        };
        let released = ballot.decision(self.deadline(None), true, decide).await;
        // A release that is not decided is tried again by the caller.
        if released.is_ok() {
            entry.decide(Left::Nothing, |_| false);
        }
        // It names the hold where it has to be withdrawn.
        let attempt = Attempt::new(hold.clone(), Duration::ZERO).in_line(false);
        self.settle(ballot, &attempt, &entry);
        released
    }

    async fn release_in(self, at: usize, hold: Hold, entry: Arc<Entry>) -> Vote<Released> {
        let mut left = entry.left[at].lock().await;
        let before = entry.proof(at);
        match before {
            Proof::Carries | Proof::Unsure => {}
            Proof::Released => return Ok(HoldStatus::Held.into()),
            // What may be there is withdrawn.
            Proof::Absent => return Ok(HoldStatus::Gone.into()),
        }
        let answer = self.shared.stores[at].release_one(&hold).await;
        let (now_left, shown) = match answer.as_ref().map(|released| released.status) {
            Ok(HoldStatus::Held) => (Left::Nothing, Proof::Released),
            // An earlier release may have ended the hold.
            Ok(HoldStatus::Gone) if before == Proof::Unsure => (Left::Nothing, before),
            Ok(HoldStatus::Gone) => (Left::Nothing, Proof::Absent),
            Err(error) if has_no_effect(error) => (*left, before),
            _ => (*left, Proof::Unsure),
        };
        *left = now_left;
        entry.prove(at, shown);
        answer
    }

    /// Withdraws everywhere.
    pub(crate) async fn withdraw_majority(&self, attempt: Attempt, unanswered: bool) -> Vote<()> {
        let entry = self.entry(&attempt.hold, true, attempt.lease);
        entry.decide(Left::Nothing, |_| false);
        let mut ballot = self.clearing(&attempt, &entry, unanswered);
        let deadline = self.deadline(None);
        let withdrawn = ballot.decision(deadline, true, most_answered).await;
        self.shared.running.spawn(ballot.rest());
        withdrawn
    }
}

fn has_no_effect(error: &StoreError) -> bool {
    use StoreErrorKind::{Transient, Unreachable};
    matches!(error.kind(), Unreachable | Transient)
}
