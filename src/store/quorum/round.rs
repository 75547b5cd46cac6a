//! One question to several stores, until the votes decide it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::error::StoreError;

/// What a store answered.
pub(super) type Vote<T> = Result<T, StoreError>;

/// Collects the votes on one question.
pub(super) struct Round<T> {
    state: Mutex<State<T>>,
    changed: Notify,
}

/// Protected by one mutex, so that every answer is either counted or gets the verdict. While `verdict` is `None`, votes are
/// added. [`Round::close`] sets the verdict once; afterwards the votes do not change.
struct State<T> {
    votes: Vec<Option<Vote<T>>>,
    verdict: Option<Verdict>,
}

/// The result of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The majority agreed.
    Carried,
    /// It did not.
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

    /// Counts the vote. Returns the verdict if the round was closed before.
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

    /// Waits until the votes decide, but not longer than `until`. Returns `false` if they did not. One caller waits at a time.
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

    /// Closes the round with the verdict that `count` returns for the votes.
    pub(super) fn close<R>(&self, count: impl FnOnce(&[Option<Vote<T>>]) -> (Verdict, R)) -> R {
        let mut state = self.state();
        let (verdict, result) = count(&state.votes);
        state.verdict = Some(verdict);
        result
    }

    /// The verdict, if the round is closed.
    pub(super) fn verdict(&self) -> Option<Verdict> {
        self.state().verdict
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
