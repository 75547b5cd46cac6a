//! The task of the renewals, and the runtimes on which it runs.

use std::mem;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::runtime::{Handle, Id};
use tokio::time::Instant;

use super::{Watchdog, WatchdogState};

/// The task of the renewals. If it is dropped before it returns, also before it begins, it continues on another runtime.
pub(super) struct RenewalTask {
    watchdog: Arc<Watchdog>,
    /// `None` after it has returned.
    alive: Option<Arc<()>>,
    on: Id,
    /// The runtimes on which it ended before. They are forgotten when it begins.
    ended: SmallVec<[Id; 2]>,
}

impl Watchdog {
    /// A task and its runtime, if no task runs. It is started, or dropped, outside the mutex.
    pub(super) fn missing_task(
        self: &Arc<Self>,
        state: &mut WatchdogState,
    ) -> Option<(RenewalTask, Handle)> {
        if state.task.strong_count() > 0 {
            return None;
        }
        let given = self.given_runtime();
        let runtime = given.or_else(|| Handle::try_current().ok())?;
        let task = RenewalTask::new(self, state, runtime.id(), SmallVec::new());
        Some((task, runtime))
    }

    /// The runtime that the client or the store has for the task.
    fn given_runtime(&self) -> Option<Handle> {
        let runtime = self.runtime.clone();
        runtime.or_else(|| self.store.capabilities().runtime())
    }

    /// The task has ended on these runtimes, and not by itself: it continues on another one.
    fn ended(self: &Arc<Self>, ended: SmallVec<[Id; 2]>) {
        // The first one still runs if the task ended by a panic, which only code outside this crate causes. So each is tried
        // once more at most.
        let may_run = |runtime: &Handle| !ended[1..].contains(&runtime.id());
        let given = self.given_runtime().filter(may_run);
        let elsewhere = given.or_else(|| self.tasks.runtime_but(&ended));
        let here = || Handle::try_current().ok().filter(may_run);
        let Some(runtime) = elsewhere.or_else(here) else {
            return;
        };
        let task = {
            let mut state = self.state();
            // A new hold may have started another one.
            let is_missing = state.task.strong_count() == 0;
            is_missing.then(|| RenewalTask::new(self, &mut state, runtime.id(), ended))
        };
        if let Some(task) = task {
            task.start(&runtime);
        }
    }
}

impl RenewalTask {
    fn new(
        watchdog: &Arc<Watchdog>,
        state: &mut WatchdogState,
        on: Id,
        ended: SmallVec<[Id; 2]>,
    ) -> Self {
        state.schedule.ask_again(Instant::now());
        let alive = Arc::new(());
        state.task = Arc::downgrade(&alive);
        Self {
            watchdog: watchdog.clone(),
            alive: Some(alive),
            on,
            ended,
        }
    }

    /// A runtime that has ended drops it at once.
    pub(super) fn start(mut self, runtime: &Handle) {
        let task = async move {
            self.ended.clear();
            self.watchdog.clone().run().await;
            drop(self.alive.take());
        };
        #[cfg(test)]
        let Some(task) = crate::exploration::spawn(task) else {
            return;
        };
        drop(runtime.spawn(task));
    }
}

impl Drop for RenewalTask {
    fn drop(&mut self) {
        if self.alive.take().is_some() {
            let mut ended = mem::take(&mut self.ended);
            ended.push(self.on);
            self.watchdog.ended(ended);
        }
    }
}
