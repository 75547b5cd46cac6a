//! One question to several stores, until a majority decides it.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::QuorumStore;
use super::hold_table::HoldRef;
use super::members::Members;
use crate::error::StoreError;
use crate::store::LockStore;
use crate::sync::{Mutex, MutexGuard};

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

/// The votes change until there is a conclusion, and never after.
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

    /// Counts the vote; if it comes too late, says how the question ended.
    pub(super) fn cast(&self, store: usize, vote: Vote<T>) -> Option<Conclusion> {
        let mut state = self.state();
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
            while !decided(&self.state().votes) {
                self.changed.notified().await;
            }
        };
        timeout_at(until, deciding).await.is_ok()
    }

    /// Ends the question: `count` makes of the votes what it will, and says how it ended.
    pub(super) fn close<R>(&self, count: impl FnOnce(&Votes<T>) -> (Conclusion, R)) -> R {
        let mut state = self.state();
        let (conclusion, result) = count(&state.votes);
        state.conclusion = Some(conclusion);
        result
    }

    /// How the question ended, if it has.
    pub(super) fn conclusion(&self) -> Option<Conclusion> {
        self.state().conclusion
    }

    fn state(&self) -> MutexGuard<'_, CallState<T>> {
        self.state.lock()
    }
}

/// What is done in one store, and where its answer goes.
pub(super) struct StoreCall<S, T> {
    pub(super) quorum: QuorumStore<S>,
    pub(super) hold: Arc<HoldRef>,
    pub(super) call: Arc<MajorityCall<T>>,
    pub(super) store: usize,
}

impl<S: LockStore> QuorumStore<S> {
    /// Asks all stores, each in its turn, and counts the votes when they decide, at the latest at `until`. What was sent to
    /// a store is awaited all the same: `ask` goes on, and learns from [`MajorityCall::cast`] that it came too late.
    pub(super) async fn majority<T, R, F>(
        &self,
        hold: &Arc<HoldRef>,
        until: Instant,
        ask: impl Fn(StoreCall<S, T>) -> F,
        decided: impl Fn(&Votes<T>) -> bool,
        count: impl FnOnce(&Votes<T>) -> (Conclusion, R),
    ) -> R
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let call = Arc::new(MajorityCall::new(self.count()));
        self.in_turn(hold, self.all(), |quorum, hold, store| {
            let call = call.clone();
            ask(StoreCall {
                quorum,
                hold,
                call,
                store,
            })
        });
        let decided = |votes: &Votes<T>| decided(votes) || votes.iter().all(Option::is_some);
        call.wait(until, decided).await;
        call.close(count)
    }

    /// Does something about a hold in each of `stores`, in its turn and to its end, in the background.
    pub(super) fn in_turn<F>(
        &self,
        hold: &Arc<HoldRef>,
        stores: Members,
        work: impl Fn(Self, Arc<HoldRef>, usize) -> F,
    ) -> Vec<JoinHandle<()>>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let tasks = stores.iter().map(|store| {
            let mut turn = hold.turn(store);
            let work = work(self.clone(), hold.clone(), store);
            self.shared.running.spawn(async move {
                turn.begin().await;
                work.await;
            })
        });
        tasks.collect()
    }
}
