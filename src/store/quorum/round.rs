//! One question to several stores, until it is decided.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::error::StoreError;

/// What a store answered.
pub(super) type Vote<T> = Result<T, StoreError>;

/// Collects the votes on one question. A store that answers in time is counted; one that answers later learns how the question ended:
/// which of the two is decided under one mutex, so that no answer falls between them.
pub(super) struct Round<T> {
    state: Mutex<State<T>>,
    changed: Notify,
}

struct State<T> {
    votes: Vec<Option<Vote<T>>>,
    verdict: Option<Verdict>,
}

/// How a question ended for its asker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// With the answer that was hoped for.
    Carried,
    /// Without.
    Failed,
}

impl<T> Round<T> {
    pub(super) fn new(stores: usize) -> Self {
        Self {
            state: Mutex::new(State {
                votes: std::iter::repeat_with(|| None).take(stores).collect(),
                verdict: None,
            }),
            changed: Notify::new(),
        }
    }

    /// Counts the vote; if it comes too late, says how the round ended.
    pub(super) fn cast(&self, store: usize, vote: Vote<T>) -> Option<Verdict> {
        let mut state = self.state();
        if state.verdict.is_some() {
            return state.verdict;
        }
        state.votes[store] = Some(vote);
        drop(state);
        self.changed.notify_one();
        None
    }

    /// Waits until the votes decide, but not longer than `until`; false if they did not. One waits at a time.
    pub(super) async fn wait(
        &self,
        until: Instant,
        mut decided: impl FnMut(&[Option<Vote<T>>]) -> bool,
    ) -> bool {
        let deciding = async {
            while !decided(&self.state().votes) {
                self.changed.notified().await;
            }
        };
        timeout_at(until, deciding).await.is_ok()
    }

    /// Ends the round: `count` makes of the votes what it will, and says the verdict.
    pub(super) fn close<R>(&self, count: impl FnOnce(&[Option<Vote<T>>]) -> (Verdict, R)) -> R {
        let mut state = self.state();
        let (verdict, result) = count(&state.votes);
        state.verdict = Some(verdict);
        result
    }

    /// How the round ended, if it has.
    pub(super) fn verdict(&self) -> Option<Verdict> {
        self.state().verdict
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
