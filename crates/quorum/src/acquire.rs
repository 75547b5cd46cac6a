//! Asking for a hold.

use std::mem::replace;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout_at};
use tower_distributed_lock::store::{Attempt, HoldStatus, LockStoreExt, Outcome, Released};
use tower_distributed_lock::{LockMode, LockStore, StoreError, StoreErrorKind};

use crate::ballot::{Ballot, Paper, Verdict, Vote, Votes, majority, no_majority};
use crate::ledger::{Place, after};
use crate::{NO_COUNTER, NO_PERMITS, NO_QUEUE, QuorumStore, refused};

/// How long the other stores may take at least when a majority has granted.
const GRACE: Duration = Duration::from_millis(5);

/// The bound of the first pause after a split vote, and of the longest. A pause is drawn at random below a bound that doubles with
/// each split.
const PAUSE: (Duration, Duration) = (Duration::from_millis(8), Duration::from_millis(500));

impl<S: LockStore> QuorumStore<S> {
    pub(crate) async fn acquire_majority(&self, attempt: Attempt) -> Vote<Outcome> {
        let started = Instant::now();
        let valid_until = self.valid_until(&attempt, started)?;
        let until = self.until(started, attempt.lease).min(valid_until);
        let room = self.room(&attempt.hold);
        if let Some(room) = &room {
            room.begin(started);
        }
        let entry = self.shared.ledger.asking(&attempt, self.stores());
        let ballot = Ballot::new(self.stores());
        let tasks = self.in_order(&attempt, &entry, |place| place.ask(ballot.paper(), until));

        let decided = |votes: &Votes<_>| Tally::of(votes).is_decided();
        ballot.wait(until, decided).await;
        // Only what has granted before the answer counts when the hold is confirmed: the others get the same time again.
        let grace = Instant::now() + GRACE.max(started.elapsed());
        let is_refused = |votes: &Votes<_>| !Tally::of(votes).is_granted();
        ballot.wait(grace.min(until), is_refused).await;

        let (outcome, tidied) = ballot.close(|votes| {
            let tally = Tally::of(votes);
            let mut outcome = match tally.outcome() {
                Some(Outcome::Granted { .. }) if Instant::now() > valid_until => Err(too_late()),
                Some(outcome) => Ok(outcome),
                None => Err(no_majority(votes, tally.has_effect(&attempt))),
            };
            let verdict = match &mut outcome {
                Ok(Outcome::Granted { .. }) => Verdict::Agreed,
                Ok(Outcome::Refused { retry_after }) => {
                    if tally.granted > 0 {
                        let splits = room.as_ref().map_or(0, |room| room.splits());
                        *retry_after = pause(splits, started.elapsed()).min(*retry_after);
                    }
                    Verdict::Refused
                }
                Err(_) => Verdict::Failed,
            };
            for (seat, vote) in entry.state().seats.iter_mut().zip(votes) {
                seat.counts = verdict == Verdict::Agreed && is_grant(vote);
            }
            if let Some(room) = &room {
                // Before a grant is given back, so that no waiter in the room takes that for a release.
                room.end(&outcome, votes.iter().map(is_grant));
            }
            let is_over = match &outcome {
                Ok(Outcome::Granted { .. }) => false,
                Ok(Outcome::Refused { .. }) => attempt.patience.is_none(),
                Err(error) => !is_unanswered(error),
            };
            if is_over {
                entry.forget();
            }
            let answered = |vote: &Option<Vote<_>>| matches!(vote, Some(Ok(_)));
            let tasks = tasks.into_iter().zip(votes);
            let tidied = tasks.filter(|(_, vote)| verdict != Verdict::Agreed && answered(vote));
            let tidied: Vec<_> = tidied.map(|(task, _)| task).collect();
            (verdict, (outcome, tidied))
        });
        // A caller that is refused finds what it was granted by a minority given back, unless a store takes too long.
        let tidied = join_all(tidied.iter().map(|task| task.cancelled()));
        let _ = timeout_at(self.deadline(), tidied).await;
        outcome
    }

    /// Until when a majority must have granted, so that something is left of the lease by clocks that drift by 1 % and 2 ms.
    fn valid_until(&self, attempt: &Attempt, started: Instant) -> Vote<Instant> {
        let drift = attempt.lease / 100 + Duration::from_millis(2);
        let valid = attempt.lease.saturating_sub(drift);
        let why = match attempt.hold.mode {
            LockMode::Fair => NO_QUEUE,
            LockMode::Permit(_) => NO_PERMITS,
            _ if attempt.fencing.is_some() => NO_COUNTER,
            _ if valid.is_zero() => "the lease is shorter than the drift of the clocks",
            _ => return Ok(after(started, valid)),
        };
        Err(refused(why))
    }
}

impl<S: LockStore> Place<S> {
    /// Asks the store, votes, and takes back what the verdict has no use for.
    fn ask(self, paper: Arc<Paper<Outcome>>, until: Instant) -> impl Future<Output = ()> + Send {
        let doubtful = self.seat(|seat| seat.doubtful);
        if doubtful {
            // At once: it may still be taking back the earlier attempt.
            let why = "an earlier question about this hold went unanswered";
            paper.cast(
                self.at,
                Err(StoreError::new(StoreErrorKind::Unanswered, why)),
            );
        }
        async move {
            if doubtful || Instant::now() >= until || !paper.is_open() {
                return; // The caller waits for it no longer, and nothing was sent.
            }
            let unused = self.seat(|seat| !replace(&mut seat.used, true));
            let answer = self.store().acquire(&self.attempt).await;
            let outcome = answer.as_ref().ok().copied();
            let doubtful = answer.as_ref().is_err_and(is_unanswered);
            self.seat(|seat| {
                seat.doubtful |= doubtful;
                seat.used = !unused || doubtful || leaves_something(&self.attempt, outcome);
            });
            paper.cast(self.at, answer);
            match (paper.verdict().await, outcome) {
                (Verdict::Agreed, Some(Outcome::Granted { .. })) => {}
                (Verdict::Refused, Some(Outcome::Granted { .. })) => self.give_back().await,
                (Verdict::Refused, _) if !doubtful => {} // It may wait there.
                _ => self.undo(false).await,
            }
        }
    }

    /// Releases a grant. The attempt may continue.
    async fn give_back(&self) {
        if let Some(room) = self.quorum.room(&self.attempt.hold) {
            room.grants(self.at);
        }
        let released = self.store().release_one(&self.attempt.hold).await;
        let is_certain = |released: &Released| released.status != HoldStatus::Unknown;
        self.seat(|seat| {
            seat.used = !released.as_ref().is_ok_and(is_certain);
            // It may still take effect, even on a later grant.
            seat.doubtful |= released.as_ref().is_err_and(is_unanswered);
        });
        self.undo(false).await;
    }
}

/// Whether a store that has answered so keeps a hold or a waiter. `None`: it failed without an effect.
fn leaves_something(attempt: &Attempt, outcome: Option<Outcome>) -> bool {
    match outcome {
        Some(Outcome::Granted { .. }) => true,
        Some(Outcome::Refused { .. }) => attempt.patience.is_some(),
        None => false,
    }
}

fn is_grant(vote: &Option<Vote<Outcome>>) -> bool {
    matches!(vote, Some(Ok(Outcome::Granted { .. })))
}

pub(crate) fn is_unanswered(error: &StoreError) -> bool {
    error.kind() == StoreErrorKind::Unanswered
}

fn too_late() -> StoreError {
    let why = "a majority granted, but too late: too little of the lease is left";
    StoreError::new(StoreErrorKind::Unanswered, why)
}

/// A random pause after a vote that took this long, and was split this often before.
fn pause(splits: u32, taken: Duration) -> Duration {
    let bound = PAUSE.0.max(2 * taken).saturating_mul(1 << splits.min(16));
    bound.min(PAUSE.1).mul_f64(fastrand::f64())
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
    fn of(votes: &Votes<Outcome>) -> Self {
        let mut tally = Self {
            majority: majority(votes.len()),
            ..Self::default()
        };
        for vote in votes {
            match vote {
                None => tally.open += 1,
                Some(Ok(Outcome::Granted { .. })) => tally.granted += 1,
                Some(Ok(Outcome::Refused { retry_after })) => tally.hints.push(*retry_after),
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
