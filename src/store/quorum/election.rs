//! Asking for a hold.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout_at};

use super::QuorumStore;
use super::entry::Turn;
use super::ledger::Opened;
use super::members::Members;
use super::round::{Round, Verdict, Vote};
use super::tally::{Tally, no_majority};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::{Attempt, LockStore, Outcome};

/// The longest pause after a split vote, and the shortest first one. It is drawn at random below a bound that doubles
/// with each split.
const PAUSE: Duration = Duration::from_millis(500);
const FIRST_PAUSE: Duration = Duration::from_millis(8);

/// How long an entry is kept for an attempt that may be made again.
const PATIENCE: Duration = Duration::from_secs(10);

/// One call of `acquire`.
struct Election {
    attempt: Attempt,
    round: Round<Outcome>,
    until: Instant,
}

/// What an election comes to.
enum Decision {
    Won,
    Refused(Tally),
    Failed(Tally, StoreError),
}

impl<S: LockStore> QuorumStore<S> {
    pub(super) async fn elect(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
        let started = Instant::now();
        let must_end = self.must_end(attempt, started)?;
        let entry = Arc::new(self.shared.ledger.open(&attempt.hold));
        let asked = entry.begin(self.all(), started + attempt.lease.max(PATIENCE));
        let election = Arc::new(Election {
            attempt: attempt.clone(),
            round: Round::new(self.count()),
            until: self.until(started, attempt.lease),
        });
        for store in asked.iter() {
            let turn = entry.turn(store);
            tokio::spawn(
                self.clone()
                    .ask(election.clone(), entry.clone(), store, turn),
            );
        }
        self.await_votes(&election, asked, started, must_end).await;
        let result = election.round.close(|votes| {
            let tally = Tally::of(self.majority(), asked, votes);
            if tally.is_won() && Instant::now() <= must_end {
                entry.won(tally.granted);
                return (Verdict::Carried, Decision::Won);
            }
            (Verdict::Failed, self.failed(attempt, tally, votes))
        });
        match result {
            Decision::Won => Ok(Outcome::Granted { token: None }),
            Decision::Refused(tally) => Ok(self.refuse(&election, &entry, started, tally).await),
            Decision::Failed(tally, error) => {
                let left = match error.kind() {
                    // Whoever asked will withdraw.
                    StoreErrorKind::Unanswered => tally.granted,
                    // Nobody will.
                    _ => tally.granted.or(tally.refused),
                };
                self.give_back(&election, &entry, left, error.kind()).await;
                Err(error)
            }
        }
    }

    /// By when a majority must have granted for enough of the lease to be left.
    fn must_end(&self, attempt: &Attempt, started: Instant) -> Result<Instant, StoreError> {
        let refused = |why| Err(StoreError::new(StoreErrorKind::Refused, why));
        if let Err(why) = self.supports(attempt.hold.mode, attempt.fencing.is_some()) {
            return refused(why);
        }
        let drift = attempt.lease / 100 + Duration::from_millis(2);
        match attempt.lease.checked_sub(drift + self.min_validity) {
            Some(spare) if !spare.is_zero() => Ok(started + spare),
            _ => refused("the lease is too short to leave the minimum validity of this quorum"),
        }
    }

    /// Waits for a decision, and after a majority has granted, as long again as that took, for stores that are not known to
    /// be silent: only what has granted by now is sure to count when the hold is confirmed.
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
        let grace = started.elapsed().max(Duration::from_millis(1));
        let until = until.min(Instant::now() + grace);
        let silent = |store: usize| self.shared.silent[store].load(Ordering::Relaxed);
        let settled = |votes: &[Option<Vote<Outcome>>]| tally(votes).open.iter().all(silent);
        election.round.wait(until, settled).await;
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

    /// Gives back what was granted, and says when to ask again.
    async fn refuse(
        &self,
        election: &Election,
        entry: &Arc<Opened>,
        started: Instant,
        tally: Tally,
    ) -> Outcome {
        let pause = entry.lost(tally.granted, Instant::now(), |splits| {
            let bound = FIRST_PAUSE.max(2 * started.elapsed());
            let bound = bound.saturating_mul(1 << splits.min(16)).min(PAUSE);
            bound.mul_f64(fastrand::f64())
        });
        if election.attempt.patience.is_none() {
            entry.retire();
        }
        self.give_back(election, entry, tally.granted, StoreErrorKind::Unanswered)
            .await;
        let hint = tally.retry_after();
        Outcome::Refused {
            retry_after: pause.map_or(hint, |pause| pause.min(hint)),
        }
    }

    /// Gives back what `stores` have granted, and waits for that as long as a store may take. Those that wait go on waiting
    /// after an `Unanswered`; after another failure nobody will ask or withdraw, so nothing is left.
    async fn give_back(
        &self,
        election: &Election,
        entry: &Arc<Opened>,
        stores: Members,
        failure: StoreErrorKind,
    ) {
        let keep_waiting = failure == StoreErrorKind::Unanswered;
        if !keep_waiting {
            entry.retire();
        }
        let returns = stores.iter().map(|store| {
            let (mut turn, entry) = (entry.turn(store), entry.clone());
            let (quorum, attempt) = (self.clone(), election.attempt.clone());
            tokio::spawn(async move {
                turn.begin().await;
                if keep_waiting {
                    quorum.return_one(&attempt, &entry, store).await;
                } else {
                    quorum.undo(&attempt, &entry, store).await;
                }
            })
        });
        let until = Instant::now() + self.store_timeout;
        let _ = timeout_at(until, join_all(returns.collect::<Vec<_>>())).await;
    }

    /// Asks one store, and gives back what comes too late.
    async fn ask(self, election: Arc<Election>, entry: Arc<Opened>, store: usize, mut turn: Turn) {
        turn.begin().await;
        let Election { attempt, round, .. } = &*election;
        if Instant::now() >= election.until || round.verdict() == Some(Verdict::Failed) {
            return; // Nobody waits for it any more, and nothing was sent.
        }
        let first = entry.touch(store);
        let asked = self.shared.stores[store].acquire(attempt);
        let answer = self.heard(store, election.until, asked).await;
        let granted = matches!(answer, Ok(Outcome::Granted { .. }));
        let unanswered = is_unanswered(&answer);
        if unanswered {
            entry.spend(store);
        } else if first && !leaves_something(attempt, &answer) {
            entry.untouch(store);
        }
        let verdict = round.cast(store, answer);
        if unanswered {
            self.undo(attempt, &entry, store).await;
        } else if granted {
            let wanted = match verdict {
                None => true, // It is counted; who counts gives back.
                Some(Verdict::Carried) => entry.join(store),
                Some(Verdict::Failed) => false,
            };
            if !wanted {
                self.return_one(attempt, &entry, store).await;
            }
        }
    }

    /// Releases what one store has granted to an attempt that failed; its owner may go on waiting.
    async fn return_one(&self, attempt: &Attempt, entry: &Opened, store: usize) {
        let until = Instant::now() + self.store_timeout;
        let released = self.shared.stores[store].release(&attempt.hold);
        if self.heard(store, until, released).await.is_err() {
            // Should the release come through later after all, it must not end the hold of a later attempt.
            entry.spend(store);
            self.undo(attempt, entry, store).await;
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
