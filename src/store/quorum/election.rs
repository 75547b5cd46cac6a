//! Asking for a hold.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

use super::entry::Epoch;
use super::ledger::Opened;
use super::members::Members;
use super::round::{Round, Verdict, Vote};
use super::tally::{Tally, no_majority};
use super::turn::Turn;
use super::{NO_COUNTER, NO_QUEUE, QuorumStore, after};
use crate::error::{StoreError, StoreErrorKind};
use crate::lock::LockMode;
use crate::store::{Attempt, LockStore, Outcome};

/// How long the slower stores may take at least after a majority has granted.
const MIN_GRACE: Duration = Duration::from_millis(5);

/// How long an entry is kept for an attempt that may be made again.
const PATIENCE: Duration = Duration::from_secs(10);

/// One call of `acquire`.
pub(super) struct Election {
    pub(super) attempt: Attempt,
    pub(super) epoch: Epoch,
    round: Round<Outcome>,
    until: Instant,
    /// Once a majority has granted: how long a store may take that keeps up with it.
    grace: OnceLock<Instant>,
}

impl Election {
    pub(super) fn new(
        attempt: Attempt,
        epoch: Epoch,
        round: Round<Outcome>,
        until: Instant,
    ) -> Self {
        Self {
            attempt,
            epoch,
            round,
            until,
            grace: OnceLock::new(),
        }
    }
}

/// What an election comes to.
enum Decision {
    Won(Tally),
    Refused(Tally),
    Failed(Tally, StoreError),
}

impl<S: LockStore> QuorumStore<S> {
    pub(super) async fn elect(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
        let started = Instant::now();
        let must_end = self.must_end(attempt, started)?;
        let entry = Arc::new(self.shared.ledger.open(&attempt.hold));
        let needed = after(started, attempt.lease.max(PATIENCE));
        let (epoch, asked) = entry.begin(self.all(), needed);
        let until = self.until(started, attempt.lease);
        let round = Round::new(self.count());
        let election = Arc::new(Election::new(attempt.clone(), epoch, round, until));
        for store in asked.iter() {
            let turn = entry.turn(store);
            self.shared.running.spawn(self.clone().ask(
                election.clone(),
                entry.clone(),
                store,
                turn,
            ));
        }
        self.await_votes(&election, asked, started, must_end).await;
        let decision = election.round.close(|votes| {
            let tally = Tally::of(self.majority(), asked, votes);
            if tally.is_won() && Instant::now() <= must_end {
                entry.won(tally.granted);
                return (Verdict::Carried, Decision::Won(tally));
            }
            (Verdict::Failed, self.failed(attempt, tally, votes))
        });
        self.conclude(election, entry, started, decision).await
    }

    /// Tidies up after a decision, and says it.
    async fn conclude(
        &self,
        election: Arc<Election>,
        entry: Arc<Opened>,
        started: Instant,
        decision: Decision,
    ) -> Result<Outcome, StoreError> {
        let (attempt, epoch) = (&election.attempt, election.epoch);
        match decision {
            Decision::Won(tally) => {
                self.shared.echoes.note(&attempt.hold, entry.waiting());
                if tally.refused.len() > 0 {
                    let quorum = self.clone();
                    tokio::spawn(quorum.complete(election, entry, tally.refused));
                }
                Ok(Outcome::Granted { token: None })
            }
            Decision::Refused(tally) => {
                if attempt.patience.is_none() {
                    entry.retire(epoch);
                }
                Ok(self.refuse(attempt, &entry, started, tally).await)
            }
            Decision::Failed(tally, error) => {
                entry.fail();
                if error.kind() == StoreErrorKind::Unanswered {
                    // The caller withdraws.
                    self.give_back(attempt, &entry, tally.granted).await;
                } else {
                    // No caller is left to withdraw.
                    entry.retire(epoch);
                    let left = tally.granted.or(tally.refused);
                    self.withdraw_from(attempt, &entry, left).await;
                }
                Err(error)
            }
        }
    }

    /// By when a majority must have granted for enough of the lease to be left.
    fn must_end(&self, attempt: &Attempt, started: Instant) -> Result<Instant, StoreError> {
        let refused = |why| Err(StoreError::new(StoreErrorKind::Refused, why));
        if attempt.hold.mode == LockMode::Fair {
            return refused(NO_QUEUE);
        }
        if attempt.fencing.is_some() {
            return refused(NO_COUNTER);
        }
        let drift = attempt.lease / 100 + Duration::from_millis(2);
        match attempt
            .lease
            .checked_sub(drift.saturating_add(self.min_validity))
        {
            Some(spare) if !spare.is_zero() => Ok(after(started, spare)),
            _ => refused("the lease is too short to leave the minimum validity of this quorum"),
        }
    }

    /// Waits for a decision and, after a majority has granted, a little for the others: only what has granted by now is
    /// sure to count when the hold is confirmed. Stores that were too slow for that the last time are not waited for.
    async fn await_votes(
        &self,
        election: &Election,
        asked: Members,
        started: Instant,
        must_end: Instant,
    ) {
        let tally = |votes: &[Option<Vote<Outcome>>]| Tally::of(self.majority(), asked, votes);
        let mut won = false;
        let decided = |votes: &[Option<Vote<Outcome>>]| {
            let tally = tally(votes);
            won = tally.is_won();
            tally.is_decided()
        };
        let until = election.until.min(must_end);
        election.round.wait(until, decided).await;
        if !won {
            return;
        }
        let now = Instant::now();
        let grace = now + MIN_GRACE.max(now - started);
        let grace = *election.grace.get_or_init(|| grace.min(until));
        let settled =
            |votes: &[Option<Vote<Outcome>>]| tally(votes).open.iter().all(|i| self.is_slow(i));
        election.round.wait(grace, settled).await;
    }

    fn failed(&self, attempt: &Attempt, tally: Tally, votes: &[Option<Vote<Outcome>>]) -> Decision {
        if tally.is_won() {
            let why = "a majority granted, but too late: too little of the lease is left";
            let error = StoreError::new(StoreErrorKind::Unanswered, why);
            return Decision::Failed(tally, error);
        }
        if tally.is_refused() {
            return Decision::Refused(tally);
        }
        let waits = attempt.patience.is_some() && tally.refused.len() > 0;
        let touched = waits || tally.granted.len() > 0;
        let error = no_majority(self.majority(), votes, touched);
        Decision::Failed(tally, error)
    }

    /// Asks one store, and gives back what comes too late.
    pub(super) async fn ask(
        self,
        election: Arc<Election>,
        entry: Arc<Opened>,
        store: usize,
        mut turn: Turn,
    ) {
        turn.begin().await;
        let Election { attempt, round, .. } = &*election;
        if Instant::now() >= election.until || round.verdict() == Some(Verdict::Failed) {
            return; // No caller waits for it any more, and nothing was sent.
        }
        let first = entry.touch(store);
        let asked = self.shared.stores[store].acquire(attempt);
        let answer = self.heard(store, election.until, asked).await;
        if let Some(grace) = election.grace.get() {
            self.set_slow(store, Instant::now() > *grace);
        }
        let outcome = answer.as_ref().ok().copied();
        let unanswered = is_unanswered(&answer);
        if unanswered {
            entry.spend(store);
        } else if first && !leaves_something(attempt, &answer) {
            entry.untouch(store);
        }
        // What was in time is counted, and the one who counts gives back.
        let verdict = round.cast(store, answer);
        match (outcome, verdict) {
            _ if unanswered => self.undo(attempt, &entry, store).await,
            (Some(Outcome::Granted { .. }), Some(Verdict::Carried))
                if entry.join(election.epoch, store) =>
            {
                // It waits for the hold to grow older, and is not counted as something under way.
                tokio::spawn(async move { self.prove(&election, &entry).await });
            }
            (Some(Outcome::Granted { .. }), Some(_)) => {
                self.return_one(attempt, &entry, store).await;
            }
            // It waits there no longer.
            (Some(Outcome::Refused { .. }), Some(Verdict::Carried))
                if attempt.patience.is_some() =>
            {
                self.undo(attempt, &entry, store).await;
            }
            _ => {}
        }
    }
}

fn is_unanswered<T>(answer: &Vote<T>) -> bool {
    matches!(answer, Err(error) if error.kind() == StoreErrorKind::Unanswered)
}

fn leaves_something(attempt: &Attempt, answer: &Vote<Outcome>) -> bool {
    match answer {
        Ok(Outcome::Granted { .. }) => true,
        Ok(Outcome::Refused { .. }) => attempt.patience.is_some(),
        Err(error) => error.kind() == StoreErrorKind::Unanswered,
    }
}
