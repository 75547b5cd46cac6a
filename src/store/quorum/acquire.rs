//! Asking for a hold.

use std::slice::from_ref;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::carriers::Carriers;
use super::hold::{AttemptedHold, Epoch, QuorumHold, StoreHold};
use super::majority::{Conclusion, MajorityCall, Votes, no_majority};
use super::members::Members;
use super::vote_count::VoteCount;
use super::{NO_COUNTER, NO_PERMITS, NO_QUEUE, QuorumStore};
use crate::error::{StoreError, StoreErrorKind};
use crate::limits::after;
use crate::lock::LockMode;
use crate::store::{Attempt, LockStore, LockStoreExt, Outcome};
use crate::sync::Mutex;

/// How long the slower stores may take at least after a majority has granted.
const MIN_GRACE: Duration = Duration::from_millis(5);

/// How much longer than its lease a hold is remembered: for an attempt that is made again, and for a late release.
pub(super) const REMEMBERED: Duration = Duration::from_secs(10);

/// The age at which a hold is asked for in the remaining stores.
const BACKFILL_AFTER: Duration = Duration::from_millis(100);

/// One call of `acquire`.
pub(super) struct AcquireCall {
    pub(super) of: AttemptedHold,
    pub(super) epoch: Epoch,
    votes: MajorityCall<Outcome>,
    until: Instant,
    /// Once a majority has granted: how long a store may take that keeps up with it.
    grace: OnceLock<Instant>,
}

impl<S: LockStore> QuorumStore<S> {
    pub(super) async fn acquire_majority(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
        let started = Instant::now();
        let must_end = self.must_end(attempt, started)?;
        let unasked = || Mutex::new(QuorumHold::new(self.count()));
        let hold = self.shared.holds.find_or(&attempt.hold, unasked);
        let needed = after(started, attempt.lease.saturating_add(REMEMBERED));
        let (epoch, asked) = hold.lock().begin(self.all(), needed);
        let attempt = attempt.clone();
        let of = AttemptedHold { attempt, hold };
        let call = self.ask_in(asked, of, epoch, started, MajorityCall::new(self.count()));
        self.await_votes(&call, asked, started, must_end).await;
        let (count, granted) = call.votes.close(|votes| {
            let count = VoteCount::of(self.majority_count(), asked, votes);
            let granted = self.is_granted(&call.of.attempt, &count, votes, must_end);
            let conclusion = match granted {
                Ok(true) => {
                    call.of.hold.lock().granted(count.granted);
                    Conclusion::Majority
                }
                _ => Conclusion::NoMajority,
            };
            (conclusion, (count, granted))
        });
        self.conclude(call, started, count, granted).await
    }

    /// Asks once more, in stores that refused what a majority has granted.
    fn ask_again(&self, won: &AcquireCall, stores: Members) {
        let votes = MajorityCall::new(self.count());
        votes.close(|_| (Conclusion::Majority, ()));
        let mut of = won.of.clone();
        of.attempt.patience = None;
        self.ask_in(stores, of, won.epoch, Instant::now(), votes);
    }

    fn ask_in(
        &self,
        stores: Members,
        of: AttemptedHold,
        epoch: Epoch,
        started: Instant,
        votes: MajorityCall<Outcome>,
    ) -> Arc<AcquireCall> {
        let call = Arc::new(AcquireCall {
            until: self.until(started, of.attempt.lease),
            of,
            epoch,
            votes,
            grace: OnceLock::new(),
        });
        self.in_order(&call.of, stores, |at| at.ask(call.clone()));
        call
    }

    /// Tidies up after a decision, and says it.
    async fn conclude(
        &self,
        call: Arc<AcquireCall>,
        started: Instant,
        count: VoteCount,
        granted: Result<bool, StoreError>,
    ) -> Result<Outcome, StoreError> {
        let AttemptedHold { attempt, hold } = &call.of;
        match granted {
            Ok(true) => {
                self.note_votes(&call.of);
                if count.refused.len() > 0 {
                    // Queued before the caller has its hold, so that what it does next comes after it.
                    let withdrawn = match attempt.patience {
                        Some(_) => self.undo_in(&call.of, count.refused),
                        None => Vec::new(),
                    };
                    tokio::spawn(self.clone().backfill(call, count.refused, withdrawn));
                }
                Ok(Outcome::Granted { token: None })
            }
            Ok(false) => {
                if attempt.patience.is_none() {
                    hold.lock().retire(call.epoch);
                }
                Ok(self.refuse(&call.of, started, count).await)
            }
            Err(error) => {
                hold.lock().carriers = Carriers::default();
                if error.kind() == StoreErrorKind::Unanswered {
                    // The caller withdraws.
                    self.give_back(&call.of, count.granted).await;
                } else {
                    // No caller is left to withdraw.
                    hold.lock().retire(call.epoch);
                    self.undo_in(&call.of, count.open);
                    let left = count.granted.or(count.refused);
                    let withdrawn = self.undo_in(&call.of, left);
                    self.as_long_as_a_store_may_take(withdrawn).await;
                }
                Err(error)
            }
        }
    }

    /// Asks for a hold that is not short once more in the stores that refused it, after the attempt was withdrawn there: the
    /// sooner all stores carry it, the more of them may fail. Most refusals have a simple cause: the store had not yet
    /// executed the previous release.
    async fn backfill(
        self,
        won: Arc<AcquireCall>,
        stores: Members,
        withdrawn: Vec<JoinHandle<()>>,
    ) {
        self.as_long_as_a_store_may_take(withdrawn).await;
        sleep(BACKFILL_AFTER).await;
        if won.of.hold.lock().is_held(won.epoch) {
            self.ask_again(&won, stores);
        }
    }

    /// A store has granted late. If the hold is not short, this checks whether it was unbroken until now, so that the
    /// store counts long before the next renewal.
    async fn prove(&self, call: &AcquireCall) {
        sleep(BACKFILL_AFTER).await;
        let AttemptedHold { attempt, hold } = &call.of;
        let is_late = {
            let hold = hold.lock();
            hold.is_held(call.epoch) && hold.carriers.late.len() > 0
        };
        if is_late {
            // The check records its result.
            let _ = self.check(from_ref(&attempt.hold)).await;
        }
    }

    /// By when a majority must have granted for enough of the lease to be left.
    fn must_end(&self, attempt: &Attempt, started: Instant) -> Result<Instant, StoreError> {
        let drift = attempt.lease / 100 + Duration::from_millis(2);
        let used = drift.saturating_add(self.min_validity);
        let spare = attempt.lease.checked_sub(used);
        let why = match attempt.hold.mode {
            LockMode::Fair => NO_QUEUE,
            LockMode::Permit(_) => NO_PERMITS,
            _ if attempt.fencing.is_some() => NO_COUNTER,
            _ => match spare.filter(|spare| !spare.is_zero()) {
                Some(spare) => return Ok(after(started, spare)),
                None => "the lease is too short to leave the minimum validity of this quorum",
            },
        };
        Err(StoreError::new(StoreErrorKind::Refused, why))
    }

    /// Waits for a decision and, after a majority has granted, a little for the others: only what has granted by now is
    /// sure to count when the hold is confirmed. Stores that were too slow for that the last time are not waited for.
    async fn await_votes(
        &self,
        call: &AcquireCall,
        asked: Members,
        started: Instant,
        must_end: Instant,
    ) {
        let count = |votes: &Votes<Outcome>| VoteCount::of(self.majority_count(), asked, votes);
        let mut granted = false;
        let decided = |votes: &Votes<Outcome>| {
            let count = count(votes);
            granted = count.is_granted();
            count.is_decided()
        };
        let until = call.until.min(must_end);
        call.votes.wait(until, decided).await;
        if !granted {
            return;
        }
        let now = Instant::now();
        let grace = now + MIN_GRACE.max(now - started);
        let grace = *call.grace.get_or_init(|| grace.min(until));
        let settled = |votes: &Votes<Outcome>| count(votes).open.iter().all(|i| self.is_slow(i));
        call.votes.wait(grace, settled).await;
    }

    /// Whether the votes grant the attempt or refuse it.
    fn is_granted(
        &self,
        attempt: &Attempt,
        count: &VoteCount,
        votes: &Votes<Outcome>,
        must_end: Instant,
    ) -> Result<bool, StoreError> {
        if count.is_granted() && Instant::now() > must_end {
            let why = "a majority granted, but too late: too little of the lease is left";
            return Err(StoreError::new(StoreErrorKind::Unanswered, why));
        }
        if count.is_granted() || count.is_refused() {
            return Ok(count.is_granted());
        }
        let waits = attempt.patience.is_some() && count.refused.len() > 0;
        let has_effect = waits || count.granted.len() > 0;
        Err(no_majority(self.majority_count(), votes, has_effect))
    }
}

impl<S: LockStore> StoreHold<S> {
    /// Asks the store, and gives back what comes too late.
    async fn ask(self, call: Arc<AcquireCall>) {
        let (AttemptedHold { attempt, hold }, store) = (&self.of, self.at);
        if Instant::now() >= call.until || call.votes.conclusion() == Some(Conclusion::NoMajority) {
            return; // No caller waits for it any more, and nothing was sent.
        }
        let first = hold.lock().soil(store);
        let asked = self.store().acquire(attempt);
        let answer = self.quorum.timed(store, call.until, asked).await;
        if let Some(grace) = call.grace.get() {
            self.quorum.set_slow(store, Instant::now() > *grace);
        }
        let outcome = answer.as_ref().ok().copied();
        let unanswered =
            matches!(&answer, Err(error) if error.kind() == StoreErrorKind::Unanswered);
        if unanswered {
            hold.lock().tainted.insert(store);
        } else if first && !leaves_something(attempt, outcome) {
            hold.lock().dirty.remove(store);
        }
        // What was in time is counted, and the one who counts gives back.
        let late = call.votes.cast(store, answer);
        match (outcome, late) {
            _ if unanswered => self.undo().await,
            (Some(Outcome::Granted { .. }), Some(Conclusion::Majority))
                if hold.lock().join(call.epoch, store) =>
            {
                // It waits for the hold to grow older, and is not counted as something under way.
                tokio::spawn(async move { self.quorum.prove(&call).await });
            }
            (Some(Outcome::Granted { .. }), Some(_)) => self.return_grant().await,
            // It waits there no longer.
            (Some(Outcome::Refused { .. }), Some(Conclusion::Majority))
                if attempt.patience.is_some() =>
            {
                self.undo().await;
            }
            _ => {}
        }
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
