//! A store with injected faults.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use super::call_plan::CallPlan;
use super::server::FaultyServer;
use super::{Fault, Faults, Tally, wakeups};
use tower_distributed_lock::audit::Audit;
use tower_distributed_lock::error::{StoreError, StoreErrorKind};
use tower_distributed_lock::lock::{Hold, LockKey};
use tower_distributed_lock::store::{
    Attempt, Capabilities, HoldStatus, LockStore, Outcome, Record, Released, Renewal,
    SeveralOutcome, Unsupported, Wakeups, Want,
};

/// A [`LockStore`] in front of another, with [`Faults`] between the two.
///
/// A clone is the connection of another process to the same store: it breaks independently, and everything else is
/// shared. Give each [`LockClient`](tower_distributed_lock::LockClient) a clone, and keep one to control and to count.
///
/// It keeps the contract of [`LockStore`], as far as the network and the data of the store allow. A late request was
/// never answered, and arrives within [`Faults::lateness`]; the store refuses it if it was withdrawn. Three faults
/// violate the contract: [`Fault::Vanished`] and [`Fault::Flushed`], which break exclusion as a real loss of data does,
/// and [`Fault::WakeupLost`].
///
/// A [`LockAdmin`](tower_distributed_lock::LockAdmin) of its client bypasses the faults.
///
/// Only holds that were requested through this store can vanish. It must be used inside a Tokio runtime.
///
/// # Cancel safety
///
/// As for every [`LockStore`], drive the futures to their end. A call that is dropped may or may not take effect.
pub struct FaultyStore<S> {
    server: Arc<FaultyServer<S>>,
    /// The number of its connection.
    link: usize,
}

impl<S: LockStore> FaultyStore<S> {
    /// Wraps `store` with `faults`, drawn from `seed`.
    pub fn new(store: S, faults: Faults, seed: u64) -> Self {
        let server = Arc::new(FaultyServer::new(store, faults, seed));
        let link = server.connect();
        Self { server, link }
    }

    /// The store behind the faults.
    pub fn inner(&self) -> &S {
        &self.server.store
    }

    /// Sets the faults of later calls. Calls under way are not affected.
    pub fn set(&self, faults: Faults) {
        self.server.state().faults = faults;
    }

    /// The faults so far, of all clones.
    pub fn tally(&self) -> Tally {
        self.server.state().tally
    }

    /// Removes every hold and every waiter, now. Only wake-ups report it. If it is cancelled, some of them may remain.
    pub async fn flush(&self) {
        self.server.flush().await;
    }

    /// Breaks the connections of all clones until [`FaultyStore::reconnect`].
    pub fn disconnect(&self) {
        self.server.set_disconnected(true);
    }

    /// Restores the connections after [`FaultyStore::disconnect`]; every listener is woken.
    pub fn reconnect(&self) {
        self.server.set_disconnected(false);
    }

    /// Delivers a call about `of` to the store and its answer back, with the faults of the call.
    pub(super) async fn call<A, T, F>(
        &self,
        of: &A,
        execute: impl Fn(Arc<FaultyServer<S>>, A::Owned) -> F,
    ) -> Result<T, StoreError>
    where
        A: ToOwned + ?Sized,
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let execute = || execute(self.server.clone(), of.to_owned());
        let Some(plan) = self.depart() else {
            let why = "the connection is down";
            return Err(StoreError::new(StoreErrorKind::Unreachable, why));
        };
        match plan.data_loss {
            None => {}
            Some(Fault::Flushed) => self.server.flush().await,
            Some(_) => self.server.vanish().await,
        }
        if plan.fault == Some(Fault::Disconnected) {
            self.break_for(plan.outage);
        }
        self.travel(plan.there).await?;
        let mut answer = None;
        match plan.fault {
            Some(Fault::Busy) => {
                self.hit(Fault::Busy);
                let why = "the store is busy";
                return Err(StoreError::new(StoreErrorKind::Transient, why));
            }
            Some(Fault::RequestLost) => self.hit(Fault::RequestLost),
            Some(Fault::Late) => self.serve_later(execute(), plan.late),
            Some(Fault::ReplyLost) => {
                drop(execute().await);
                self.hit(Fault::ReplyLost);
            }
            fault => {
                answer = Some(execute().await);
                if fault == Some(Fault::Twice) {
                    self.hit(Fault::Twice);
                    drop(execute().await);
                }
                if plan.is_reply_cut {
                    self.break_for(plan.outage);
                }
            }
        }
        let back = answer.as_ref().map_or(plan.timeout, |_| plan.back);
        self.travel(back).await?;
        answer.unwrap_or_else(|| Err(unanswered("no answer came in time")))
    }

    /// Draws the faults of a call; `None` if the connection is down.
    fn depart(&self) -> Option<CallPlan> {
        let mut state = self.server.state();
        state.tally.calls += 1;
        if !state.is_up(self.link) {
            state.tally.unreachable += 1;
            return None;
        }
        Some(CallPlan::draw(&mut state))
    }

    /// Waits for `time`, unless the connection breaks.
    async fn travel(&self, time: Duration) -> Result<(), StoreError> {
        let cut = self.server.cut(self.link);
        tokio::select! {
            // A fixed order, so that one seed gives one history.
            biased;
            () = cut => Err(unanswered("the connection broke")),
            () = pass(time) => Ok(()),
        }
    }

    fn serve_later<T>(&self, serve: impl Future<Output = T> + Send + 'static, late: Duration) {
        let server = self.server.clone();
        tokio::spawn(async move {
            sleep(late).await;
            drop(serve.await);
            server.state().tally.hit(Fault::Late);
        });
    }

    fn break_for(&self, outage: Duration) {
        self.hit(Fault::Disconnected);
        let (server, link) = (self.server.clone(), self.link);
        server.break_link(link);
        tokio::spawn(async move {
            sleep(outage).await;
            server.restore_link(link);
        });
    }

    fn hit(&self, fault: Fault) {
        self.server.state().tally.hit(fault);
    }
}

/// For zero time, it does not yield to the runtime.
async fn pass(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}

fn unanswered(why: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Unanswered, why)
}

impl<S: LockStore> LockStore for FaultyStore<S> {
    async fn acquire(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
        self.call(attempt, async |server, of| server.acquire(&of).await)
            .await
    }

    async fn acquire_several(
        &self,
        attempts: &[Attempt],
        want: Want,
    ) -> Result<SeveralOutcome, StoreError> {
        self.call(attempts, |server, of| async move {
            server.acquire_several(&of, want).await
        })
        .await
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<HoldStatus>, StoreError> {
        self.call(renewals, async |server, of| server.store.renew(&of).await)
            .await
    }

    async fn release(&self, hold: &Hold, record: Option<&Record>) -> Result<Released, StoreError> {
        let question = (hold.clone(), record.cloned());
        self.call(&question, async |server, (hold, record)| {
            server.release(&hold, record.as_ref()).await
        })
        .await
    }

    async fn record(&self, key: &LockKey) -> Result<Option<Bytes>, StoreError> {
        self.call(key, async |server, of| server.store.record(&of).await)
            .await
    }

    async fn withdraw(&self, attempt: &Attempt, unanswered: bool) -> Result<(), StoreError> {
        self.call(attempt, |server, of| async move {
            server.withdraw(&of, unanswered).await
        })
        .await
    }

    async fn subscribe(&self, attempt: &Attempt) -> Result<Wakeups, StoreError> {
        let wakeups = self.call(attempt, async |server, of| {
            server.store.subscribe(&of).await
        });
        Ok(wakeups::relay(&self.server, self.link, wakeups.await?))
    }

    async fn audit(&self) -> Result<Audit, StoreError> {
        self.call(&(), async |server, ()| server.store.audit().await)
            .await
    }

    fn capabilities(&self) -> Capabilities {
        self.server.store.capabilities()
    }

    fn partition(&self, key: &LockKey) -> Result<u16, Unsupported> {
        self.server.store.partition(key)
    }
}

impl<S: LockStore> Clone for FaultyStore<S> {
    fn clone(&self) -> Self {
        Self {
            server: self.server.clone(),
            link: self.server.connect(),
        }
    }
}

impl<S: LockStore> fmt::Debug for FaultyStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyStore")
            .field("tally", &self.tally())
            .field("is_up", &self.server.state().is_up(self.link))
            .finish_non_exhaustive()
    }
}
