//! Compares the answers to a process with the actions of the stores.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::sleep;
use tower_distributed_lock::error::{StoreError, StoreErrorKind};
use tower_distributed_lock::lock::{Hold, HoldId};
use tower_distributed_lock::store::{
    Attempt, Capabilities, Feature, HoldStatus, LockStore, Outcome, Record, Released, Renewal,
    SeveralOutcome, Wakeups, Want,
};

use super::checked_stores::CheckedStores;
use super::log::{Log, short};
use super::waits::Waits;
use crate::support::Flaw;

/// How long a call of a dead process takes.
const PATIENCE: Duration = Duration::from_secs(2);

/// A process's end of its connection to a store. It may die, and its answers may be spoiled by a [`Flaw`].
#[derive(Clone)]
pub(super) struct Observed<S> {
    inner: S,
    flaw: Flaw,
    judge: Option<Arc<Judge>>,
    dead: Arc<AtomicBool>,
    asked: Arc<Mutex<HashMap<HoldId, u64>>>,
}

/// The records that the answers are compared with.
pub(super) struct Judge {
    pub(super) log: Arc<Log>,
    pub(super) waits: Arc<Waits>,
    pub(super) checked_stores: Arc<CheckedStores>,
    /// Whether a granted hold still exists when the process gets the answer.
    pub(super) keeps_data: bool,
}

impl<S> Observed<S> {
    pub(super) fn new(inner: S, flaw: Flaw) -> Self {
        Self {
            inner,
            flaw,
            judge: None,
            dead: Arc::default(),
            asked: Arc::default(),
        }
    }

    pub(super) fn judged_by(mut self, judge: &Arc<Judge>) -> Self {
        self.judge = Some(judge.clone());
        self
    }

    /// Kills the process: it sends and receives nothing more. Requests under way arrive. Its calls end without an answer, so that it
    /// gives up what it keeps.
    pub(super) fn die(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }

    async fn unless_dead<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        if !self.dead.load(Ordering::Relaxed) {
            let answer = call.await;
            if !self.dead.load(Ordering::Relaxed) {
                return answer;
            }
        }
        sleep(PATIENCE).await;
        let why = "the process has died";
        Err(StoreError::new(StoreErrorKind::Unreachable, why))
    }

    /// Whether the question is dropped.
    fn is_swallowed(&self, attempt: &Attempt) -> bool {
        if self.flaw != Flaw::Silent || attempt.patience.is_none() {
            return false;
        }
        let mut asked = self.asked.lock().unwrap();
        let times = asked.entry(attempt.hold.id).or_default();
        *times += 1;
        *times > 2 && !times.is_multiple_of(8)
    }
}

impl Judge {
    fn answered(&self, attempt: &Attempt, answer: &Result<Outcome, StoreError>) {
        match answer {
            Ok(Outcome::Granted { .. }) => self.granted(&attempt.hold),
            Err(error) if error.kind() == StoreErrorKind::Unanswered => self.waits.failed(attempt),
            _ => {}
        }
    }

    fn granted(&self, hold: &Hold) {
        if !self.checked_stores.have_granted(hold) {
            let text = format!("{} is said to be granted, and is not", short(hold.id));
            self.log.violated("S9", text);
        }
        if self.keeps_data && !self.checked_stores.carry(hold) {
            let text = format!("{} is said to be granted, and has gone", short(hold.id));
            self.log.violated("S1", text);
        }
    }
}

impl<S: LockStore> LockStore for Observed<S> {
    async fn acquire(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
        if self.is_swallowed(attempt) {
            let retry_after = Duration::from_secs(1);
            return Ok(Outcome::Refused { retry_after });
        }
        let answer = self.unless_dead(self.inner.acquire(attempt)).await;
        if let Some(judge) = &self.judge {
            judge.answered(attempt, &answer);
        }
        match answer {
            Err(error)
                if self.flaw == Flaw::TakesSilenceForYes
                    && error.kind() == StoreErrorKind::Unanswered =>
            {
                Ok(Outcome::Granted { token: None })
            }
            answer => answer,
        }
    }

    async fn acquire_several(
        &self,
        attempts: &[Attempt],
        want: Want,
    ) -> Result<SeveralOutcome, StoreError> {
        let asked = self.inner.acquire_several(attempts, want);
        let answer = self.unless_dead(asked).await;
        if let (Some(judge), Ok(SeveralOutcome::Granted(grants))) = (&self.judge, &answer) {
            let granted = grants.iter().map(|grant| &attempts[grant.index]);
            granted.for_each(|one| judge.granted(&one.hold));
        }
        answer
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<HoldStatus>, StoreError> {
        self.unless_dead(self.inner.renew(renewals)).await
    }

    async fn release(&self, hold: &Hold, record: Option<&Record>) -> Result<Released, StoreError> {
        let releasing = self.inner.release(hold, record);
        let mut released = self.unless_dead(releasing).await?;
        if self.flaw == Flaw::Vouches {
            released.status = HoldStatus::Held;
        }
        Ok(released)
    }

    async fn withdraw(&self, attempt: &Attempt, unanswered: bool) -> Result<(), StoreError> {
        self.unless_dead(self.inner.withdraw(attempt, unanswered))
            .await
    }

    async fn subscribe(&self, attempt: &Attempt) -> Result<Wakeups, StoreError> {
        self.unless_dead(self.inner.subscribe(attempt)).await
    }

    fn capabilities(&self) -> Capabilities {
        let none = "answers about locks are compared, records are not";
        self.inner.capabilities().without(Feature::Records, none)
    }
}
