//! Ending a hold or an attempt.

use std::time::Duration;

use tokio::sync::oneshot;
use tower_distributed_lock::error::{StoreError, StoreErrorKind};
use tower_distributed_lock::lock::Hold;
use tower_distributed_lock::store::{Attempt, HoldStatus, LockStore, LockStoreExt, Released};

use crate::QuorumStore;
use crate::ballot::{Ballot, Vote, Votes, most_answered};
use crate::ledger::{Place, Seat};

impl<S: LockStore> QuorumStore<S> {
    /// Releases everywhere. A release that too few stores answered may be repeated: what they said is kept.
    pub(crate) async fn release_majority(&self, hold: &Hold) -> Vote<Released> {
        // It names the hold where it has to be withdrawn.
        let attempt = Attempt::new(hold.clone(), Duration::ZERO).in_line(false);
        let release = |quorum: Self, answer: oneshot::Sender<_>| async move {
            let entry = quorum.entry(&attempt.hold, Seat::Counts, Duration::ZERO);
            let places = quorum.places(&attempt, &entry);
            let mut ballot = Ballot::new(places.iter().map(Place::release));
            let decide = |votes: &Votes<Released>| {
                let carried = |_, seat| (seat == Seat::Released).then_some(HoldStatus::Held);
                let status = entry.unbroken(carried)?;
                // As many as any of the stores has woken.
                let notified = votes.iter().flatten().flatten().map(|vote| vote.notified);
                Some(Released::new(status, notified.max().unwrap_or_default()))
            };
            let released = ballot.decision(quorum.deadline(), true, decide).await;
            // A release that is not decided is tried again by the caller.
            let is_over = released.is_ok();
            if is_over {
                entry.end(Seat::Used);
            }
            drop(answer.send(released));
            let places = &places;
            let finish = ballot.finish(|at, _| async move {
                if is_over {
                    places[at].undo(None).await;
                }
            });
            finish.await;
        };
        self.in_background(release).await
    }

    /// Withdraws everywhere.
    pub(crate) async fn withdraw_majority(&self, attempt: Attempt, unanswered: bool) -> Vote<()> {
        let left = if unanswered {
            Seat::Doubtful
        } else {
            Seat::Used
        };
        let withdraw = |quorum: Self, answer: oneshot::Sender<_>| async move {
            let entry = quorum.entry(&attempt.hold, Seat::Counts, attempt.lease);
            entry.end(left);
            let places = quorum.places(&attempt, &entry);
            let mut ballot = Ballot::new(places.iter().map(Place::withdraw));
            let withdrawn = ballot.decision(quorum.deadline(), true, most_answered);
            drop(answer.send(withdrawn.await));
            ballot.finish(|at, _| places[at].undo(None)).await;
        };
        self.in_background(withdraw).await
    }
}

impl<S: LockStore> Place<'_, S> {
    async fn release(&self) -> Vote<Released> {
        let _turn = self.turn().await;
        match self.seat(|seat| *seat) {
            Seat::Counts | Seat::Unsure => {}
            Seat::Released => return Ok(HoldStatus::Held.into()),
            // What may be there is withdrawn.
            Seat::Empty | Seat::Used | Seat::Doubtful | Seat::Buried => {
                return Ok(HoldStatus::Gone.into());
            }
        }
        let answer = self.store.release_one(&self.attempt.hold).await;
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
        answer
    }
}

fn has_no_effect(error: &StoreError) -> bool {
    use StoreErrorKind::{Transient, Unreachable};
    matches!(error.kind(), Unreachable | Transient)
}
