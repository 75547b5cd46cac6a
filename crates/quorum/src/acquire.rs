//! Asking for a hold.

use std::mem::replace;
use std::time::Duration;

use tokio::sync::{MutexGuard as Turn, oneshot};
use tokio::time::Instant;
use tower_distributed_lock::LockMode;
use tower_distributed_lock::error::{StoreError, StoreErrorKind};
use tower_distributed_lock::store::{Attempt, LockStore, Outcome};

use crate::ballot::{Ballot, Vote, Votes, majority, no_majority};
use crate::ledger::{Place, Seat, after, is_unanswered};
use crate::{NO_COUNTER, NO_PERMITS, NO_QUEUE, QuorumStore, refused};

/// How long the other stores may take at least when a majority has granted.
const GRACE: Duration = Duration::from_millis(5);

/// An answer, and the turn in its store. Nothing else is done about the hold there until it is clear what becomes of a grant.
type Answered<'a> = (Outcome, Turn<'a, ()>);

impl<S: LockStore> QuorumStore<S> {
    pub(crate) async fn acquire_majority(&self, attempt: Attempt) -> Vote<Outcome> {
        let started = Instant::now();
        // A majority must have granted by then, so that something is left of the lease by clocks that drift by 1 % and 2 ms.
        let drift = attempt.lease / 100 + Duration::from_millis(2);
        let valid_until = after(started, attempt.lease.saturating_sub(drift));
        let why = match attempt.hold.mode {
            LockMode::Fair => NO_QUEUE,
            LockMode::Permit(_) => NO_PERMITS,
            _ if attempt.fencing.is_some() => NO_COUNTER,
            _ if valid_until == started => "the lease is shorter than the drift of the clocks",
            _ => {
                let ask = |quorum: Self, answer| async move {
                    quorum.ask(attempt, started, valid_until, answer).await;
                };
                return self.in_background(ask).await;
            }
        };
        Err(refused(why))
    }

    /// Asks every store, answers, and takes back what the answer has no use for.
    async fn ask(
        self,
        attempt: Attempt,
        started: Instant,
        valid_until: Instant,
        answer: oneshot::Sender<Vote<Outcome>>,
    ) {
        let entry = self.entry(&attempt.hold, Seat::Empty, attempt.lease);
        let places = self.places(&attempt, &entry);
        let room = self.room(&attempt.hold);
        room.begin();
        let until = self.until(started, attempt.lease).min(valid_until);
        let mut ballot = Ballot::new(places.iter().map(|place| place.acquire(until)));
        let decided = |votes: &Votes<_>| Tally::of(votes).is_decided();
        ballot.wait(until, decided).await;
        // Only what has granted before the answer counts when the hold is confirmed: the others get the same time again.
        let grace = Instant::now() + GRACE.max(started.elapsed());
        let is_refused = |votes: &Votes<_>| !Tally::of(votes).is_granted();
        ballot.wait(grace.min(until), is_refused).await;

        let tally = Tally::of(&ballot.votes);
        let outcome = match tally.outcome() {
            Some(Outcome::Granted { .. }) if Instant::now() > valid_until => Err(too_late()),
            Some(outcome) => Ok(outcome),
            None => Err(no_majority(&ballot.votes, tally.has_effect(&attempt))),
        };
        let grants: Vec<_> = ballot.votes.iter().map(is_grant).collect();
        let is_granted = matches!(outcome, Ok(Outcome::Granted { .. }));
        entry.count(|at| is_granted && grants[at]);
        let outcome = outcome.map(|outcome| room.answered(outcome, &grants, started.elapsed()));
        drop(answer.send(outcome.clone()));

        let (places, outcome) = (&places, &outcome);
        let finish = ballot.finish(|at, vote| async move {
            match vote {
                Ok((answer, turn)) if !keeps(outcome, answer) => places[at].undo(Some(turn)).await,
                Err(error) if is_unanswered(&error) => places[at].undo(None).await,
                _ => {}
            }
        });
        finish.await;
    }
}

impl<'a, S: LockStore> Place<'a, S> {
    async fn acquire(&self, until: Instant) -> Vote<Answered<'a>> {
        self.is_certain()?; // At once: it may still be taking back the earlier attempt.
        let turn = self.turn().await;
        self.is_certain()?;
        if Instant::now() >= until {
            let why = "the caller waits no longer, and nothing was sent";
            return Err(StoreError::new(StoreErrorKind::Unreachable, why));
        }
        let before = self.seat(|seat| replace(seat, Seat::Used));
        let answer = self.store.acquire(self.attempt).await;
        self.seat(|seat| match &answer {
            Ok(Outcome::Granted { .. }) => {}
            Ok(Outcome::Refused { .. }) if self.attempt.patience.is_some() => {}
            Err(error) if is_unanswered(error) => *seat = Seat::Doubtful,
            Ok(Outcome::Refused { .. }) | Err(_) if before == Seat::Empty => *seat = before,
            Ok(Outcome::Refused { .. }) | Err(_) => {}
        });
        answer.map(|outcome| (outcome, turn))
    }

    fn is_certain(&self) -> Vote<()> {
        match self.seat(|seat| *seat) {
            Seat::Doubtful | Seat::Buried => {
                let why = "an earlier question about this hold went unanswered";
                Err(StoreError::new(StoreErrorKind::Unanswered, why))
            }
            _ => Ok(()),
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

fn is_grant(vote: &Option<Vote<Answered<'_>>>) -> bool {
    matches!(vote, Some(Ok((Outcome::Granted { .. }, _))))
}

fn too_late() -> StoreError {
    let why = "a majority granted, but too late: too little of the lease is left";
    StoreError::new(StoreErrorKind::Unanswered, why)
}

/// The votes on an attempt, counted.
#[derive(Default)]
struct Tally {
    majority: usize,
    granted: usize,
    /// Stores that have not answered.
    open: usize,
    /// When the stores that refused may grant, the earliest first.
    hints: Vec<Duration>,
}

impl Tally {
    fn of(votes: &Votes<Answered<'_>>) -> Self {
        let mut tally = Self {
            majority: majority(votes.len()),
            ..Self::default()
        };
        for vote in votes {
            match vote {
                None => tally.open += 1,
                Some(Ok((Outcome::Granted { .. }, _))) => tally.granted += 1,
                Some(Ok((Outcome::Refused { retry_after }, _))) => tally.hints.push(*retry_after),
                Some(Err(_)) => {}
            }
        }
        tally.hints.sort_unstable();
        tally
    }

    fn is_granted(&self) -> bool {
        self.granted >= self.majority
    }

    /// Whether a majority has answered, with grants or without.
    fn is_answered(&self) -> bool {
        self.granted + self.hints.len() >= self.majority
    }

    /// Whether the votes that are missing change nothing.
    fn is_decided(&self) -> bool {
        let can_be_granted = self.granted + self.open >= self.majority;
        let can_be_answered = self.granted + self.hints.len() + self.open >= self.majority;
        self.is_granted() || !can_be_granted && (self.is_answered() || !can_be_answered)
    }

    /// The answer of a majority. It may be free when enough leases have ended.
    fn outcome(&self) -> Option<Outcome> {
        if self.is_granted() {
            return Some(Outcome::Granted { token: None });
        }
        let missing = self.majority - self.granted;
        let hint = self.hints.get(missing - 1).or(self.hints.last());
        let retry_after = hint.copied().unwrap_or_default();
        self.is_answered()
            .then_some(Outcome::Refused { retry_after })
    }

    /// Whether the attempt has left something in a store, although it failed.
    fn has_effect(&self, attempt: &Attempt) -> bool {
        self.granted > 0 || attempt.patience.is_some() && !self.hints.is_empty()
    }
}
