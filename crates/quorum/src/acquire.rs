//! Asking for a hold.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tower_distributed_lock::error::{StoreError, StoreErrorKind};
use tower_distributed_lock::store::{Attempt, Feature, LockStore, Outcome};

use crate::QuorumStore;
use crate::ballot::{Ballot, Vote, Votes, answered, majority, no_majority};
use crate::ledger::{Place, Seat, Turn, after, is_unanswered};

/// How long the other stores may take at least when a majority has granted.
const GRACE: Duration = Duration::from_millis(5);

/// An answer, and the turn in its store. Nothing else is done about the hold there until it is clear what becomes of a grant.
type Answered = (Outcome, Turn);

impl<S: LockStore> QuorumStore<S> {
    pub(crate) async fn acquire_majority(&self, attempt: Attempt) -> Vote<Outcome> {
        self.check(Feature::Mode(attempt.hold.mode))?;
        if attempt.fencing.is_some() {
            self.check(Feature::Fencing)?;
        }
        let started = Instant::now();
        let until = self.deadline(Some(attempt.lease));
        let entry = self.entry(&attempt.hold, Seat::Empty, attempt.lease);
        let places = Place::all(self, &attempt, &entry);
        let mut ballot = Ballot::new(places.iter().map(|place| place.clone().acquire(until)));
        ballot.wait(until, is_decided).await;
        // Only what has granted before the answer counts when the hold is confirmed: the others get the same time again.
        let grace = Instant::now() + GRACE.max(started.elapsed());
        let is_refused = |votes: &Votes<_>| grants(votes) < majority(votes.len());
        ballot.wait(grace.min(until), is_refused).await;

        // Something must be left of the lease by clocks that drift by 1 % and 2 ms.
        let drift = attempt.lease / 100 + Duration::from_millis(2);
        let valid_until = after(started, attempt.lease.saturating_sub(drift));
        let pace = self.pace(&attempt.hold.key);
        let outcome = match outcome(&ballot.votes) {
            Some(Outcome::Granted { .. }) if Instant::now() > valid_until => Err(too_late()),
            Some(Outcome::Refused { retry_after }) if grants(&ballot.votes) > 0 => {
                let retry_after = pace.pause(started.elapsed()).min(retry_after);
                Ok(Outcome::Refused { retry_after })
            }
            Some(outcome) => {
                pace.go_on();
                Ok(outcome)
            }
            None => Err(no_majority(&ballot.votes, true)),
        };
        let is_granted = matches!(outcome, Ok(Outcome::Granted { .. }));
        entry.count(|at| is_granted && ballot.votes[at].as_ref().is_some_and(is_grant));
        let answer = outcome.clone();
        let follow = move |at: usize, vote| places[at].clone().follow(vote, outcome.clone());
        self.shared.running.spawn(ballot.finish(follow));
        answer
    }
}

impl<S: LockStore> Place<S> {
    async fn acquire(self: Arc<Self>, until: Instant) -> Vote<Answered> {
        let turn = self.turn().await;
        let before = self.seat(|seat| *seat);
        if matches!(before, Seat::Doubtful | Seat::Buried) {
            let why = "an earlier question about this hold went unanswered";
            return Err(StoreError::new(StoreErrorKind::Unanswered, why));
        }
        if Instant::now() >= until {
            let why = "the caller waits no longer, and nothing was sent";
            return Err(StoreError::new(StoreErrorKind::Unreachable, why));
        }
        self.seat(|seat| *seat = Seat::Used);
        let answer = self.store().acquire(&self.attempt).await;
        let leaves_nothing = match &answer {
            Ok(Outcome::Granted { .. }) => false,
            Ok(Outcome::Refused { .. }) => self.attempt.patience.is_none(),
            Err(_) => true,
        };
        if answer.as_ref().is_err_and(is_unanswered) {
            self.seat(|seat| *seat = Seat::Doubtful);
        } else if leaves_nothing && before == Seat::Empty {
            self.seat(|seat| *seat = Seat::Empty);
        }
        answer.map(|outcome| (outcome, turn))
    }

    /// Takes back what the outcome has no use for.
    async fn follow(self: Arc<Self>, vote: Vote<Answered>, outcome: Vote<Outcome>) {
        match vote {
            Ok((answer, turn)) if !keeps(&outcome, answer) => self.undo(Some(turn)).await,
            Err(error) if is_unanswered(&error) => self.undo(None).await,
            _ => {}
        }
    }
}

/// Whether an answer stays in its store after this outcome: a grant that was needed, or a waiter's entry.
fn keeps(outcome: &Vote<Outcome>, answer: Outcome) -> bool {
    use Outcome::{Granted, Refused};
    matches!(
        (outcome, answer),
        (Ok(Granted { .. }), Granted { .. }) | (Ok(Refused { .. }), Refused { .. })
    )
}

fn too_late() -> StoreError {
    let why = "a majority granted, but too late: too little of the lease is left";
    StoreError::new(StoreErrorKind::Unanswered, why)
}

fn is_grant(vote: &Vote<Answered>) -> bool {
    matches!(vote, Ok((Outcome::Granted { .. }, _)))
}

fn grants(votes: &Votes<Answered>) -> usize {
    votes.iter().flatten().filter(|vote| is_grant(vote)).count()
}

/// Whether the votes that are missing change nothing.
fn is_decided(votes: &Votes<Answered>) -> bool {
    let (majority, granted) = (majority(votes.len()), grants(votes));
    let open = votes.iter().filter(|vote| vote.is_none()).count();
    granted >= majority || granted + open < majority && answered(votes) >= majority
}

/// The answer of a majority. It may be free when enough leases have ended.
fn outcome(votes: &Votes<Answered>) -> Option<Outcome> {
    let (majority, granted) = (majority(votes.len()), grants(votes));
    if granted >= majority {
        return Some(Outcome::Granted { token: None });
    }
    let hint = |(outcome, _): &Answered| match outcome {
        Outcome::Refused { retry_after } => Some(*retry_after),
        Outcome::Granted { .. } => None,
    };
    let mut hints: Vec<_> = votes.iter().flatten().flatten().filter_map(hint).collect();
    hints.sort_unstable();
    let enough = hints.get(majority - granted - 1).or(hints.last());
    let retry_after = enough.copied().unwrap_or_default();
    (answered(votes) >= majority).then_some(Outcome::Refused { retry_after })
}
