//! The background work of a client.
//!
//! The [`Watchdog`] renews holds in batches at a third of their lease, and finds lost holds. [`CleanupTasks`] finish the
//! work of dropped futures and guards. [`OwnerChecks`] ask the store whether it carries a hold that continues. Renewals
//! are one task, without a timer or a task per hold, on the store's runtime if it has one, so that holds outlive a runtime
//! whose workers are all busy. Clean-up runs on the runtimes of the callers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::runtime;
use tokio::time::{Instant, timeout};

use crate::error::{LockError, StoreError, StoreErrorKind};
use crate::store::{BATCH, DynStore, HoldStatus, Record, Released, Renewal};
use crate::telemetry::Journal;

mod checks;
mod cleanup;
mod driven;
mod live;
mod pace;
mod release;
mod schedule;
mod serial_map;
mod watchdog;

use checks::OwnerChecks;
use cleanup::CleanupTasks;
pub(crate) use cleanup::Job;
pub(crate) use driven::Driven;
pub(crate) use live::{LiveHold, Phase};
use pace::{PaceSlot, ReleasePace};
use watchdog::{OnLost, Watchdog};

/// The first pause between attempts of a failed release or check; it doubles.
const FIRST_BACKOFF: Duration = Duration::from_millis(20);

/// How long a caller waits for the answer to a release or an owner check. The work continues in the background.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// A handle of the background work. The renewal task ends with the last handle.
#[derive(Clone)]
pub(crate) struct Keeper {
    handle: Arc<Handle>,
}

struct Handle {
    store: Arc<dyn DynStore>,
    watchdog: Arc<Watchdog>,
    tasks: Arc<CleanupTasks>,
    checks: Arc<OwnerChecks>,
    pace: Arc<ReleasePace>,
    journal: Journal,
}

impl Keeper {
    /// Calls `on_lost` for every lost hold. Holds are renewed on `runtime`, otherwise on the store's runtime.
    pub(crate) fn new(
        store: Arc<dyn DynStore>,
        runtime: Option<runtime::Handle>,
        journal: Journal,
        on_lost: OnLost,
    ) -> Self {
        let tasks = Arc::<CleanupTasks>::default();
        Self {
            handle: Arc::new(Handle {
                watchdog: Watchdog::new(
                    store.clone(),
                    runtime,
                    tasks.clone(),
                    journal.clone(),
                    on_lost,
                ),
                checks: OwnerChecks::new(store.clone(), tasks.clone()),
                pace: Arc::default(),
                journal,
                tasks,
                store,
            }),
        }
    }

    pub(crate) fn store(&self) -> Arc<dyn DynStore> {
        self.handle.store.clone()
    }

    /// Renews `live` until it ends, and notices its loss.
    pub(crate) fn keep(&self, live: &Arc<LiveHold>) {
        // Remembered because the guard may be dropped outside of every runtime.
        if let Ok(here) = runtime::Handle::try_current() {
            self.handle.tasks.note(&here);
        }
        self.handle.watchdog.begin(live);
    }

    /// Another guard shares `live`: if its limit is later than before, the hold is renewed again.
    pub(crate) fn shared(&self, live: &LiveHold) {
        if let Some(look) = live.take_extended() {
            self.handle.watchdog.extended(live, look);
        }
    }

    /// Has the store keep holds until `until` at least, also without this process. Returns whether it carries all of them.
    pub(crate) fn extend<'a>(
        &self,
        lives: impl IntoIterator<Item = &'a Arc<LiveHold>>,
        until: Instant,
    ) -> Driven<Result<(), LockError>> {
        // A renewal shortens nothing, so that those of the watchdog leave this lease as it is.
        let lease = until.saturating_duration_since(Instant::now());
        let renewals = lives.into_iter();
        let renewals = renewals.map(|live| Renewal::new(live.hold.clone(), lease));
        let store = &self.handle.store;
        let renewals = store.by_partition(renewals, |renewal| &renewal.hold.key);
        let renewals = renewals.into_values();
        let renewals = join_all(renewals.map(|renewals| self.store().renew(renewals)));
        let held = |statuses: Result<Vec<HoldStatus>, StoreError>| {
            let statuses = statuses?;
            let all = statuses.iter().all(|status| *status == HoldStatus::Held);
            all.then_some(()).ok_or(LockError::Lost)
        };
        Driven::new(self.clone(), async move {
            worst(renewals.await.into_iter().map(held))
        })
    }

    /// Ends a hold: stops its renewal, and releases it in the store. Returns whether it was held until then.
    ///
    /// A `record` is stored in the same step. `asked` is called with the store's first answer, also if it is an error.
    /// `until_done` is dropped at the end.
    ///
    /// Without a record, a hold within its [minimum](LiveHold::minimum) is left in the store until then, and `asked` is dropped.
    pub(crate) fn end(
        &self,
        live: Arc<LiveHold>,
        record: Option<Record>,
        asked: impl FnOnce(Released) + Send + 'static,
        until_done: impl Send + 'static,
    ) -> Driven<Result<(), LockError>> {
        // Counted first, so that a shutdown that finds no hold finds the count.
        let unfinished = self.handle.tasks.begin();
        let held = self.begin_release(&live);
        if record.is_none()
            && let Some(until) = live.minimum()
        {
            self.release_at(&live, until);
            let left = self.clone().leave(live);
            let left = async move {
                if held {
                    left.await
                } else {
                    Err(LockError::Lost)
                }
            };
            return Driven::counted(unfinished, left).of_lost(!held);
        }
        if self.handle.store.answers_at_once() {
            // No other release has to wait for it, so it needs no slot.
            let record = record.filter(|_| held);
            let released = self.release_at_once(&live, record, asked);
            drop(until_done);
            return Driven::done(if held { released } else { Err(LockError::Lost) });
        }
        let keeper = self.clone();
        let release = async move {
            let slot = keeper.slot(|| keeper.partition(&live)).await;
            // A release without an answer is repeated after growing pauses, and does not block others any more.
            let asked = move |released| {
                drop(slot);
                asked(released);
            };
            // A lost hold is released as well, because the store may still carry it.
            let record = record.filter(|_| held);
            let released = keeper.release(live, record, asked).await;
            drop(until_done);
            if held { released } else { Err(LockError::Lost) }
        };
        Driven::counted(unfinished, release).of_lost(!held)
    }

    /// Ends several holds together, those of one partition in few questions. Returns whether all were held until then.
    pub(crate) fn end_all<A, D>(
        &self,
        ends: impl IntoIterator<Item = End<A, D>>,
    ) -> Driven<Result<(), LockError>>
    where
        A: FnOnce(Released) + Send + 'static,
        D: Send + 'static,
    {
        let unfinished = self.handle.tasks.begin();
        let (mut left, mut rest) = (Vec::new(), Vec::new());
        let mut held = true;
        for end in ends {
            held &= self.begin_release(&end.live);
            match end.live.minimum() {
                Some(until) => {
                    self.release_at(&end.live, until);
                    left.push(self.clone().leave(end.live));
                }
                None => rest.push(end),
            }
        }
        let store = &self.handle.store;
        let partitions = store.by_partition(rest, |end| &end.live.hold.key);
        let keeper = self.clone();
        let release = async move {
            let releases = partitions.into_iter();
            let releases = releases.map(|(partition, ends)| keeper.end_in(partition, ends));
            let (released, left) = tokio::join!(join_all(releases), join_all(left));
            match held {
                true => worst(released.into_iter().flatten().chain(left)),
                false => Err(LockError::Lost),
            }
        };
        Driven::counted(unfinished, release).of_lost(!held)
    }

    async fn end_in<A: FnOnce(Released) + Send, D: Send>(
        &self,
        partition: u16,
        ends: Vec<End<A, D>>,
    ) -> Vec<Result<(), LockError>> {
        let mut slot = self.slot(|| partition).await;
        let mut unasked = ends.len();
        let mut lives = Vec::with_capacity(unasked);
        let mut asked = Vec::with_capacity(unasked);
        let mut until_done = Vec::with_capacity(unasked);
        for end in ends {
            lives.push(end.live);
            asked.push(Some(end.asked));
            until_done.push(end.until_done);
        }
        let answered = |place: usize, released| {
            unasked -= 1;
            if unasked == 0 {
                slot.take();
            }
            if let Some(asked) = asked[place].take() {
                asked(released);
            }
        };
        let released = self.clone().release_many(lives, answered).await;
        drop(until_done);
        released
    }

    /// A slot among the releases that no caller waits for; `None` if a caller waits.
    async fn slot(&self, partition: impl FnOnce() -> u16) -> Option<PaceSlot> {
        match driven::is_in_background() {
            true => Some(self.handle.pace.clone().enter(partition()).await),
            false => None,
        }
    }

    fn partition(&self, live: &LiveHold) -> u16 {
        let partition = self.handle.store.partition(&live.hold.key);
        partition.unwrap_or_default()
    }

    /// Stops the renewal before a release. Returns `false` if the hold is lost already.
    pub(crate) fn begin_release(&self, live: &LiveHold) -> bool {
        self.handle.watchdog.end(live)
    }

    /// Asks the store whether it carries the hold now. Concurrent callers share one question.
    ///
    /// # Errors
    ///
    /// `Lost`, or `Unavailable` if that is not known within [`PATIENCE`].
    pub(crate) async fn check(&self, live: &Arc<LiveHold>) -> Result<(), LockError> {
        let checked = timeout(PATIENCE, async {
            match self.handle.checks.check(live).await {
                Ok(HoldStatus::Held) => Ok(()),
                Ok(HoldStatus::Gone) => self.explain_the_absence_of(live).await,
                Ok(HoldStatus::Unknown) => Err(undecided().into()),
                Err(error) => Err(error.into()),
            }
        });
        checked.await.unwrap_or_else(|_| Err(late().into()))
    }

    async fn explain_the_absence_of(&self, live: &Arc<LiveHold>) -> Result<(), LockError> {
        match live.phase() {
            // A later guard of the hold has released it before the question: its confirmation covers both.
            Phase::Released => Ok(()),
            Phase::Releasing if live.ended().await == Phase::Released => Ok(()),
            _ => {
                let watchdog = &self.handle.watchdog;
                watchdog.lose(live, "the store does not carry it any more");
                Err(LockError::Lost)
            }
        }
    }

    /// Drives `job` to its end in the background. Never blocks; works outside a runtime.
    pub(crate) fn adopt(&self, job: Job) {
        self.handle.tasks.begin().adopt(job);
    }

    /// Gives up every live hold: it is lost for its guards, and released in the store, or left there until the end of its
    /// [minimum](LiveHold::minimum).
    pub(crate) fn abandon_all(&self) {
        // Counted first, as in `end`.
        let _unfinished = self.handle.tasks.begin();
        let watchdog = &self.handle.watchdog;
        let mut rest = Vec::new();
        for live in watchdog.all() {
            watchdog.lose(&live, "the client was shut down");
            match live.minimum() {
                Some(until) => self.release_at(&live, until),
                None => rest.push(live),
            }
        }
        let store = &self.handle.store;
        let partitions = store.by_partition(rest, |live| &live.hold.key);
        for lives in partitions.into_values() {
            let store = self.store();
            self.adopt(Box::pin(async move {
                release::release_together(store, &lives, |_, _| ()).await;
            }));
        }
    }

    /// Waits until all work is done, including work that callers wait for.
    pub(crate) async fn drained(&self) {
        self.handle.tasks.drained().await;
    }
}

/// A hold that ends together with others: see [`Keeper::end`].
pub(crate) struct End<A, D> {
    pub(crate) live: Arc<LiveHold>,
    pub(crate) asked: A,
    pub(crate) until_done: D,
}

/// The most important of several results: a loss, otherwise the first error.
pub(crate) fn worst(
    results: impl IntoIterator<Item = Result<(), LockError>>,
) -> Result<(), LockError> {
    let mut worst = Ok(());
    for result in results {
        if worst.is_ok() || matches!(result, Err(LockError::Lost)) {
            worst = result;
        }
    }
    worst
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.watchdog.retire();
    }
}

/// The error if the store answered, but could not decide about a hold.
fn undecided() -> StoreError {
    StoreError::new(
        StoreErrorKind::Unanswered,
        "the store cannot say whether it carries the hold",
    )
}

/// The error if the store did not answer within the caller's time limit.
fn late() -> StoreError {
    StoreError::new(
        StoreErrorKind::Unanswered,
        "the store has not answered in time; the release goes on in the background",
    )
}

fn in_batches<T>(items: Vec<T>) -> Vec<Vec<T>> {
    let mut items = items.into_iter();
    let mut batches = Vec::new();
    loop {
        let batch: Vec<T> = items.by_ref().take(BATCH).collect();
        if batch.is_empty() {
            return batches;
        }
        batches.push(batch);
    }
}
