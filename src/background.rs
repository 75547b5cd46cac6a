//! The background work of a client.
//!
//! The [`Watchdog`] renews holds and finds those that are lost. [`CleanupTasks`] finish the work of dropped futures and
//! guards, on the runtimes of the callers. Owner checks ask the store whether it carries a hold that continues.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::runtime;
use tokio::time::Instant;

use crate::cleanup::{CleanupTasks, Job, NonCancellable, ReleaseLimit, Work, in_time};
use crate::error::{LockError, StoreError, worst};
use crate::store::{BATCH, DynStore, HoldStatus, Renewal};
use crate::telemetry::Events;
use crate::watchdog::{LiveHold, LossCallback, Phase, Watchdog};

mod checks;
mod end;
mod hold_release;
mod release;
mod release_question;

use checks::OwnerChecks;
pub(crate) use hold_release::HoldRelease;
pub(crate) use release::EndOfHold;
use release::held;
#[cfg(all(test, shuttle))]
pub(crate) use release_question::ReleaseQuestion;

/// A handle of the background work. The renewal task ends with the last handle.
#[derive(Clone)]
pub(crate) struct Background {
    handle: Arc<Handle>,
}

struct Handle {
    store: Arc<dyn DynStore>,
    watchdog: Arc<Watchdog>,
    tasks: Arc<CleanupTasks>,
    checks: OwnerChecks,
    release_limit: ReleaseLimit,
}

impl Background {
    /// Calls `on_lost` for every lost hold. Holds are renewed on `runtime`, otherwise on the store's runtime.
    pub(crate) fn new(
        store: Arc<dyn DynStore>,
        runtime: Option<runtime::Handle>,
        events: Events,
        on_lost: LossCallback,
    ) -> Self {
        let tasks = Arc::<CleanupTasks>::default();
        Self {
            handle: Arc::new(Handle {
                watchdog: Watchdog::new(store.clone(), runtime, tasks.clone(), events, on_lost),
                checks: OwnerChecks::default(),
                release_limit: ReleaseLimit::default(),
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
        self.handle.tasks.note_runtime();
        self.handle.watchdog.begin(live);
    }

    /// Starts jobs here whose runtime has ended: the caller may wait for what they release.
    pub(crate) fn start_stranded(&self) {
        self.handle.tasks.start_stranded();
    }

    /// No request comes any more. The guards that exist are renewed and released as before, on the runtimes that are known.
    pub(crate) fn close(&self) {
        self.handle.tasks.close();
    }

    /// Another guard shares `live`: if its limit is later than before, the hold is renewed again.
    pub(crate) fn shared(&self, live: &Arc<LiveHold>) {
        if let Some(look) = live.take_extended() {
            self.handle.watchdog.extended(live, look);
        }
    }

    /// Has the store keep holds until `until` at least, also without this process. Returns whether it carries all of them.
    pub(crate) fn extend<'a>(
        &self,
        lives: impl IntoIterator<Item = &'a Arc<LiveHold>>,
        until: Instant,
    ) -> impl Future<Output = Result<(), LockError>> + Send + 'static {
        // A renewal never shortens a lease: later renewals by the watchdog keep this one.
        let lease = until.saturating_duration_since(Instant::now());
        let lives = lives.into_iter().cloned();
        let lives = lives.inspect(|live| live.asks_until(until));
        let store = &self.handle.store;
        let partitions = store.by_partition(lives, |live| &live.hold.key);
        let renewals = partitions.into_values().map(|lives| {
            let renewals = lives.iter();
            let renewals = renewals.map(|live| Renewal::new(live.hold.clone(), lease));
            let renewed = self.store().renew(renewals.collect());
            async move {
                let statuses: Result<Vec<HoldStatus>, StoreError> = renewed.await;
                // Of several batches, one may have been executed.
                if let Err(error) = &statuses
                    && error.is_without_effect()
                    && lives.len() <= BATCH
                {
                    lives.iter().for_each(|live| live.was_not_asked());
                }
                worst(statuses?.into_iter().map(|status| held(Ok(status))))
            }
        });
        let renewals = join_all(renewals);
        let all_held = async move { worst(renewals.await) };
        in_time(self.non_cancellable(Box::pin(all_held)))
    }

    /// Drives work to its end, also if its caller drops it.
    pub(crate) fn non_cancellable<F: Work>(&self, work: F) -> NonCancellable<F> {
        NonCancellable::new(self.handle.tasks.begin(), work)
    }

    /// Whether a store that answers at once carries the hold.
    pub(crate) fn holds_now(&self, live: &LiveHold) -> bool {
        let store = self.handle.store.at_once();
        store.is_some_and(|store| store.holds_now(&live.hold))
    }

    /// Asks the store whether it carries the hold now. Concurrent callers share one question. The caller bounds the wait.
    ///
    /// # Errors
    ///
    /// `Lost`, also if it was seen lost; `Unavailable` if the store does not say.
    pub(crate) async fn check(&self, live: &Arc<LiveHold>) -> Result<(), LockError> {
        let checked = match self.ask_about(live).await {
            Ok(HoldStatus::Gone) => self.explain_the_absence_of(live).await,
            status => held(status),
        };
        // Another guard may know of a loss since, which is final, also if the store carries the hold.
        match live.was_seen_lost() {
            true => Err(LockError::Lost),
            false => checked,
        }
    }

    async fn explain_the_absence_of(&self, live: &Arc<LiveHold>) -> Result<(), LockError> {
        match live.phase() {
            // A later guard of the hold has released it before the question: its confirmation covers both.
            Phase::Released => Ok(()),
            // The release of the other guard says itself whether it was lost.
            Phase::Releasing => match live.ended().await {
                Phase::Released => Ok(()),
                _ => Err(LockError::Lost),
            },
            Phase::Held | Phase::Lost => {
                let watchdog = &self.handle.watchdog;
                watchdog.lose(live, "the store does not carry it any more");
                live.found_gone();
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
            if !watchdog.lose(&live, "the client was shut down") {
                // Its guard releases it.
                continue;
            }
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
                release::release_together(store, &lives, |_, _| (), |_, _| ()).await;
            }));
        }
    }

    /// Waits until all work is done, including work that callers wait for.
    pub(crate) async fn drained(&self) {
        self.handle.tasks.drained().await;
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.watchdog.retire();
    }
}
