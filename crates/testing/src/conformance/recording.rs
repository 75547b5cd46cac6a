//! A store that records its questions for the tests.

use std::cell::Cell;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::watch;

use super::asked::Asked;
use tower_distributed_lock::LockKey;
use tower_distributed_lock::error::StoreError;
use tower_distributed_lock::lock::{Hold, HoldId};
use tower_distributed_lock::store::{
    Attempt, Capabilities, HoldStatus, LockStore, Outcome, Record, Released, Renewal,
    SeveralOutcome, Unsupported, Wakeups, Want,
};

/// Forwards every question to a store, and records questions and grants.
pub(super) struct RecordingStore {
    inner: Arc<dyn Asked>,
    asked: Arc<Mutex<Recording>>,
    gate: Gate,
}

/// Whether the questions of a process go out, or wait because it is paused.
pub(super) type Gate = Arc<watch::Sender<bool>>;

/// What the processes of one test have asked their stores. The counts only rise, and entries are only added.
#[derive(Default)]
pub(super) struct Recording {
    /// The number of questions, without renewals, which depend on time.
    pub(super) questions: usize,
    /// Each question that has not been answered has a clone.
    under_way: Arc<()>,
    /// The number of batches of renewals.
    pub(super) renewals: usize,
    /// Every hold that was granted.
    pub(super) granted: Vec<Hold>,
    /// The hold of each question that was refused.
    pub(super) refused: Vec<HoldId>,
}

impl Recording {
    /// Whether every question has been answered, and more than these were refused.
    pub(super) fn has_settled(&self, refused: usize) -> bool {
        Arc::strong_count(&self.under_way) == 1 && self.refused.len() > refused
    }
}

thread_local! {
    /// The hold of the last attempt on this thread.
    static LAST: Cell<Option<HoldId>> = const { Cell::new(None) };
}

/// Polls a request, and returns the hold that it has asked for meanwhile.
pub(super) fn asked_during<T>(poll: impl FnOnce() -> T) -> (T, Option<HoldId>) {
    LAST.set(None);
    let polled = poll();
    (polled, LAST.take())
}

impl RecordingStore {
    pub(super) fn new(inner: Arc<dyn Asked>, asked: Arc<Mutex<Recording>>) -> Self {
        let gate = Arc::new(watch::Sender::new(true));
        Self { inner, asked, gate }
    }

    pub(super) fn gate(&self) -> Gate {
        self.gate.clone()
    }

    async fn ask<T>(&self, question: impl Future<Output = T>) -> T {
        let mut is_open = self.gate.subscribe();
        is_open.wait_for(|is_open| *is_open).await.unwrap();
        let _under_way = {
            let mut asked = self.asked.lock().unwrap();
            asked.questions += 1;
            asked.under_way.clone()
        };
        question.await
    }
}

impl LockStore for RecordingStore {
    async fn acquire(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
        LAST.set(Some(attempt.hold.id));
        let outcome = self.ask(self.inner.acquire(attempt)).await?;
        let mut asked = self.asked.lock().unwrap();
        match outcome {
            Outcome::Granted { .. } => asked.granted.push(attempt.hold.clone()),
            Outcome::Refused { .. } => asked.refused.push(attempt.hold.id),
        }
        Ok(outcome)
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<HoldStatus>, StoreError> {
        let renewing = self.inner.renew(renewals);
        if renewals.iter().all(|renewal| renewal.lease.is_none()) {
            return self.ask(renewing).await;
        }
        self.asked.lock().unwrap().renewals += 1;
        renewing.await
    }

    async fn release(&self, hold: &Hold, record: Option<&Record>) -> Result<Released, StoreError> {
        self.ask(self.inner.release(hold, record)).await
    }

    async fn record(&self, key: &LockKey) -> Result<Option<Bytes>, StoreError> {
        self.inner.record(key).await
    }

    async fn withdraw(&self, attempt: &Attempt, unanswered: bool) -> Result<(), StoreError> {
        self.ask(self.inner.withdraw(attempt, unanswered)).await
    }

    async fn subscribe(&self, attempt: &Attempt) -> Result<Wakeups, StoreError> {
        LAST.set(Some(attempt.hold.id));
        self.ask(self.inner.subscribe(attempt)).await
    }

    async fn acquire_several(
        &self,
        attempts: &[Attempt],
        want: Want,
    ) -> Result<SeveralOutcome, StoreError> {
        let asking = self.inner.acquire_several(attempts, want);
        let outcome = self.ask(asking).await?;
        if let SeveralOutcome::Granted(grants) = &outcome {
            let granted = grants
                .iter()
                .map(|grant| attempts[grant.index].hold.clone());
            self.asked.lock().unwrap().granted.extend(granted);
        }
        Ok(outcome)
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn partition(&self, key: &LockKey) -> Result<u16, Unsupported> {
        self.inner.partition(key)
    }
}
