//! One question to several stores, until a majority decides it: [`MajorityCall`]. Every operation of a quorum is one.
//!
//! Renewals and inspections ask all stores at once, by [`QuorumStore::ask_all`]. Attempts, releases and withdrawals ask each store in
//! the order of the operations on the hold, by [`QuorumStore::in_order`]. A subscription asks until its listener ends.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::QuorumStore;
use super::hold::{AttemptedHold, StoreHold};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::LockStore;
use crate::sync::Mutex;

/// What a store answered.
pub(super) type Vote<T> = Result<T, StoreError>;

/// What the stores have answered so far.
pub(super) type Votes<T> = [Option<Vote<T>>];

/// A question, and the votes on it. A store that answers in time is counted; one that answers later learns how the question
/// ended: which of the two is decided under one mutex, so that no answer falls between them.
pub(super) struct MajorityCall<T> {
    state: Mutex<CallState<T>>,
    changed: Notify,
}

/// Protected by one mutex, under which only that of a hold is taken. The votes change until there is a conclusion, and never after.
struct CallState<T> {
    votes: Vec<Option<Vote<T>>>,
    conclusion: Option<Conclusion>,
}

/// The result of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Conclusion {
    /// The majority agreed.
    Majority,
    /// It did not.
    NoMajority,
}

impl<T> MajorityCall<T> {
    pub(super) fn new(stores: usize) -> Self {
        Self {
            state: Mutex::new(CallState {
                votes: std::iter::repeat_with(|| None).take(stores).collect(),
                conclusion: None,
            }),
            changed: Notify::new(),
        }
    }

    /// Counts the vote, in place of an earlier one of this store; if it comes too late, says how the question ended.
    pub(super) fn cast(&self, store: usize, vote: Vote<T>) -> Option<Conclusion> {
        let mut state = self.state.lock();
        if state.conclusion.is_some() {
            return state.conclusion;
        }
        state.votes[store] = Some(vote);
        drop(state);
        self.changed.notify_one();
        None
    }

    /// Waits until the votes decide, but not longer than `until`. Returns `false` if they did not. One caller waits at a time.
    pub(super) async fn wait(
        &self,
        until: Instant,
        mut decided: impl FnMut(&Votes<T>) -> bool,
    ) -> bool {
        let deciding = async {
            while !decided(&self.state.lock().votes) {
                self.changed.notified().await;
            }
        };
        timeout_at(until, deciding).await.is_ok()
    }

    /// Closes the call. `count` computes the conclusion and the result from the votes.
    pub(super) fn close<R>(&self, count: impl FnOnce(&Votes<T>) -> (Conclusion, R)) -> R {
        let mut state = self.state.lock();
        let (conclusion, result) = count(&state.votes);
        state.conclusion = Some(conclusion);
        result
    }

    /// Waits until the votes decide or all stores have voted, at the latest until `until`, and ends the question. Without a
    /// decision, it fails; `has_effect` says whether any store may have been changed all the same.
    pub(super) async fn decision<R>(
        &self,
        until: Instant,
        majority: usize,
        decide: impl Fn(&Votes<T>) -> Option<R>,
        has_effect: impl FnOnce(&Votes<T>) -> bool,
    ) -> Result<R, StoreError> {
        let decided =
            |votes: &Votes<T>| decide(votes).is_some() || votes.iter().all(Option::is_some);
        self.wait(until, decided).await;
        self.close(|votes| match decide(votes) {
            Some(result) => (Conclusion::Majority, Ok(result)),
            None => {
                let error = no_majority(majority, votes, has_effect(votes));
                (Conclusion::NoMajority, Err(error))
            }
        })
    }

    /// How the question ended, if it has.
    pub(super) fn conclusion(&self) -> Option<Conclusion> {
        self.state.lock().conclusion
    }
}

impl<S: LockStore> QuorumStore<S> {
    /// Asks all stores at the same time. What was sent to a store is awaited all the same, in the background.
    pub(super) fn ask_all<T, F>(&self, ask: impl Fn(usize) -> F) -> Arc<MajorityCall<T>>
    where
        T: Send + 'static,
        F: Future<Output = Vote<T>> + Send + 'static,
    {
        let call = Arc::new(MajorityCall::new(self.count()));
        for store in self.all().iter() {
            let (call, answer) = (call.clone(), ask(store));
            self.shared.running.spawn(async move {
                call.cast(store, answer.await);
            });
        }
        call
    }

    /// Asks all stores about a hold, each in its turn, for a [decision](MajorityCall::decision). What was sent to a store is
    /// awaited all the same: `ask` goes on, and learns from [`MajorityCall::cast`] that it came too late.
    pub(super) async fn majority<T, R, F>(
        &self,
        of: &AttemptedHold,
        until: Instant,
        ask: impl Fn(StoreHold<S>, Arc<MajorityCall<T>>) -> F,
        decide: impl Fn(&Votes<T>) -> Option<R>,
        has_effect: impl FnOnce(&Votes<T>) -> bool,
    ) -> Result<R, StoreError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let call = Arc::new(MajorityCall::new(self.count()));
        self.in_order(of, self.all(), |at| ask(at, call.clone()));
        let majority = self.majority_count();
        call.decision(until, majority, decide, has_effect).await
    }
}

/// How many stores have answered without an error.
pub(super) fn answered<T>(votes: &Votes<T>) -> usize {
    votes.iter().flatten().filter(|vote| vote.is_ok()).count()
}

/// Decides when a majority of the stores has answered.
pub(super) fn most_answered<T>(majority: usize) -> impl Fn(&Votes<T>) -> Option<()> {
    move |votes| (answered(votes) >= majority).then_some(())
}

/// Why there was no majority: `has_effect` says whether any store may have been changed all the same.
pub(super) fn no_majority<T>(majority: usize, votes: &Votes<T>, has_effect: bool) -> StoreError {
    let given = || votes.iter().flatten();
    let errors = || given().filter_map(|vote| vote.as_ref().err());
    let count = |kind| errors().filter(|error| error.kind() == kind).count();
    let silent = votes.len() - given().count();
    let kind = if count(StoreErrorKind::Conflict) >= majority {
        StoreErrorKind::Conflict
    } else if count(StoreErrorKind::Refused) >= majority {
        StoreErrorKind::Refused
    } else if has_effect || silent > 0 || count(StoreErrorKind::Unanswered) > 0 {
        StoreErrorKind::Unanswered
    } else if count(StoreErrorKind::Transient) + count(StoreErrorKind::Unacknowledged) > 0 {
        StoreErrorKind::Transient
    } else {
        StoreErrorKind::Unreachable
    };
    let cause = NoMajority {
        of: votes.len(),
        answered: answered(votes),
        failed: errors().count(),
        silent,
        source: errors().next().cloned(),
    };
    StoreError::new(kind, cause)
}

#[derive(Debug, thiserror::Error)]
#[error(
    "no majority: of {of} stores {answered} answered, {failed} failed and {silent} did not answer in time"
)]
struct NoMajority {
    of: usize,
    answered: usize,
    failed: usize,
    silent: usize,
    source: Option<StoreError>,
}
