//! A store that records its questions for the tests.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::store::{
    Attempt, Capabilities, Feature, HoldStatus, LockStore, Outcome, Release, Released, Renewal,
    SeveralOutcome, Unsupported, Wakeups, Want,
};
use crate::{Hold, HoldId, LockKey, StoreError};

/// Forwards every question to a store, and records questions and grants.
pub(super) struct RecordingStore<S> {
    inner: S,
    calls: Arc<Calls>,
}

/// The questions to the observed stores of one test.
///
/// The counts and the two lists, each under a mutex of its own, are independent: entries are added and never removed.
#[derive(Default)]
pub(super) struct Calls {
    questions: AtomicUsize,
    renewals: AtomicUsize,
    under_way: AtomicUsize,
    granted: Mutex<Vec<Hold>>,
    refused: Mutex<Vec<HoldId>>,
}

impl Calls {
    /// The number of questions, without renewals, which depend on time.
    pub(super) fn questions(&self) -> usize {
        self.questions.load(Ordering::SeqCst)
    }

    /// Polls a request, and returns the hold that it has asked for meanwhile.
    pub(super) fn asked_during<T>(poll: impl FnOnce() -> T) -> (T, Option<HoldId>) {
        HERE.set(None);
        let polled = poll();
        (polled, HERE.take())
    }

    fn asks_here(attempt: &Attempt) {
        HERE.set(Some(attempt.hold.id));
    }

    /// The number of questions that have not been answered.
    pub(super) fn under_way(&self) -> usize {
        self.under_way.load(Ordering::SeqCst)
    }

    /// The number of batches of renewals.
    pub(super) fn renewals(&self) -> usize {
        self.renewals.load(Ordering::SeqCst)
    }

    /// Every hold that was ever granted on `key`.
    pub(super) fn granted(&self, key: &LockKey) -> Vec<Hold> {
        let granted = self.granted.lock().unwrap();
        let granted = granted.iter().filter(|hold| hold.key == *key);
        granted.cloned().collect()
    }

    /// The number of refused questions.
    pub(super) fn refused(&self) -> usize {
        self.refused.lock().unwrap().len()
    }

    /// Whether an attempt at this hold was refused.
    pub(super) fn is_refused(&self, hold: HoldId) -> bool {
        self.refused.lock().unwrap().contains(&hold)
    }

    fn refuse(&self, hold: &Hold) {
        self.refused.lock().unwrap().push(hold.id);
    }

    fn grant(&self, hold: &Hold) {
        self.granted.lock().unwrap().push(hold.clone());
    }
}

thread_local! {
    static HERE: Cell<Option<HoldId>> = const { Cell::new(None) };
}

impl<S> RecordingStore<S> {
    pub(super) fn new(inner: S, calls: &Arc<Calls>) -> Self {
        Self {
            inner,
            calls: calls.clone(),
        }
    }

    async fn ask<T>(&self, answer: impl Future<Output = T>) -> T {
        self.calls.questions.fetch_add(1, Ordering::SeqCst);
        self.calls.under_way.fetch_add(1, Ordering::SeqCst);
        let _under_way = UnderWay(&self.calls);
        answer.await
    }
}

/// A question that has not been answered.
struct UnderWay<'a>(&'a Calls);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<S: LockStore> LockStore for RecordingStore<S> {
    async fn acquire(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
        Calls::asks_here(attempt);
        let answer = async {
            let answer = self.inner.acquire(attempt).await;
            match answer {
                Ok(Outcome::Granted { .. }) => self.calls.grant(&attempt.hold),
                Ok(Outcome::Refused { .. }) => self.calls.refuse(&attempt.hold),
                Err(_) => {}
            }
            answer
        };
        self.ask(answer).await
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<HoldStatus>, StoreError> {
        if renewals.iter().all(|renewal| renewal.lease.is_none()) {
            return self.ask(self.inner.renew(renewals)).await;
        }
        self.calls.renewals.fetch_add(1, Ordering::SeqCst);
        self.inner.renew(renewals).await
    }

    async fn release(&self, releases: &[Release]) -> Result<Vec<Released>, StoreError> {
        self.ask(self.inner.release(releases)).await
    }

    async fn withdraw(&self, attempt: &Attempt, unanswered: bool) -> Result<(), StoreError> {
        self.ask(self.inner.withdraw(attempt, unanswered)).await
    }

    async fn subscribe(&self, attempt: &Attempt) -> Result<Wakeups, StoreError> {
        Calls::asks_here(attempt);
        self.ask(self.inner.subscribe(attempt)).await
    }

    async fn acquire_several(
        &self,
        attempts: &[Attempt],
        want: Want,
    ) -> Result<SeveralOutcome, StoreError> {
        let answer = async {
            let answer = self.inner.acquire_several(attempts, want).await;
            if let Ok(SeveralOutcome::Granted(grants)) = &answer {
                let granted = grants.iter().map(|grant| &attempts[grant.index]);
                granted.for_each(|attempt| self.calls.grant(&attempt.hold));
            }
            answer
        };
        self.ask(answer).await
    }

    fn capabilities(&self) -> Capabilities {
        let none = "only the questions about locks are counted";
        self.inner.capabilities().without(Feature::Records, none)
    }

    fn partition(&self, key: &LockKey) -> Result<u16, Unsupported> {
        self.inner.partition(key)
    }
}
