//! Ending a hold or an attempt.

use std::time::Duration;

use tower_distributed_lock::error::{StoreError, StoreErrorKind};
use tower_distributed_lock::lock::Hold;
use tower_distributed_lock::store::{Attempt, HoldStatus, LockStore, LockStoreExt, Released};

use crate::QuorumStore;
use crate::ballot::{Vote, Votes, most_answered};
use crate::ledger::{Place, Seat};

impl<S: LockStore> QuorumStore<S> {
    /// Releases everywhere. A release that too few stores answered may be repeated: what they said is kept.
    pub(crate) async fn release_majority(&self, hold: &Hold) -> Vote<Released> {
        // It names the hold where it has to be withdrawn.
        let attempt = Attempt::new(hold.clone(), Duration::ZERO).in_line(false);
        let entry = self.entry(hold, Seat::Counts, Duration::ZERO);
        let mut ballot = self.in_turn(&attempt, &entry, Place::release);
        let decide = |votes: &Votes<Released>| {
            let carried = |_, seat| (seat == Seat::Released).then_some(HoldStatus::Held);
            let status = entry.unbroken(carried)?;
            // As many as any of the stores has woken.
            let notified = votes.iter().flatten().flatten().map(|vote| vote.notified);
            Some(Released::new(status, notified.max().unwrap_or_default()))
        };
        let released = ballot.decision(self.deadline(None), true, decide).await;
        // A release that is not decided is tried again by the caller.
        let is_over = released.is_ok();
        if is_over {
            entry.end(Seat::Used);
        }
        let follow = move |_, place: Place<S>| async move {
            if is_over {
                place.undo().await;
            }
        };
        self.shared.running.spawn(ballot.finish(follow));
        released
    }

    /// Withdraws everywhere.
    pub(crate) async fn withdraw_majority(&self, attempt: Attempt, unanswered: bool) -> Vote<()> {
        let left = if unanswered {
            Seat::Doubtful
        } else {
            Seat::Used
        };
        let entry = self.entry(&attempt.hold, Seat::Counts, attempt.lease);
        entry.end(left);
        let mut ballot = self.in_turn(&attempt, &entry, Place::withdraw);
        let deadline = self.deadline(None);
        let withdrawn = ballot.decision(deadline, true, most_answered).await;
        let follow = |_, place: Place<S>| place.undo();
        self.shared.running.spawn(ballot.finish(follow));
        withdrawn
    }
}

impl<S: LockStore> Place<S> {
    async fn release(self) -> (Vote<Released>, Self) {
        match self.seat(|seat| *seat) {
            Seat::Counts | Seat::Unsure => {}
            Seat::Released => return (Ok(HoldStatus::Held.into()), self),
            // What may be there is withdrawn.
            Seat::Empty | Seat::Used | Seat::Doubtful => {
                return (Ok(HoldStatus::Gone.into()), self);
            }
        }
        let answer = self.store().release_one(&self.attempt.hold).await;
        let status = answer.as_ref().map(|released| released.status);
        self.seat(|seat| match (status, *seat) {
            (Ok(HoldStatus::Held), Seat::Counts | Seat::Unsure) => *seat = Seat::Released,
            // An earlier release may have ended the hold.
            (Ok(HoldStatus::Gone), Seat::Unsure) => {}
            (Ok(HoldStatus::Held | HoldStatus::Gone), _) => *seat = Seat::Empty,
            (Err(error), _) if has_no_effect(error) => {}
            (_, Seat::Counts) => *seat = Seat::Unsure,
            _ => {}
        });
        (answer, self)
    }
}

fn has_no_effect(error: &StoreError) -> bool {
    use StoreErrorKind::{Transient, Unreachable};
    matches!(error.kind(), Unreachable | Transient)
}
