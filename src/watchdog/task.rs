//! The task of the renewals, and the runtimes on which it runs.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::runtime::{Handle, Id};
use tokio::time::Instant;

use super::{Watchdog, WatchdogState};

impl Watchdog {
    /// Starts the task. Starts it again if its runtime has ended. Returns the runtime, to be dropped outside the mutex.
    pub(super) fn ensure_running(self: &Arc<Self>, state: &mut WatchdogState) -> Option<Handle> {
        if state.task.strong_count() > 0 {
            return None;
        }
        let given = self.given_runtime();
        let runtime = given.or_else(|| Handle::try_current().ok())?;
        self.start(state, &runtime);
        Some(runtime)
    }

    /// The runtime that the client or the store has for the task.
    fn given_runtime(&self) -> Option<Handle> {
        let runtime = self.runtime.clone();
        runtime.or_else(|| self.store.capabilities().runtime())
    }

    fn start(self: &Arc<Self>, state: &mut WatchdogState, runtime: &Handle) {
        state.schedule.ask_again(Instant::now());
        let alive = Arc::new(());
        state.task = Arc::downgrade(&alive);
        let task_runtime = runtime.id();
        state.task_runtime = Some(task_runtime);
        let watchdog = self.clone();
        // If the task is dropped before it begins, because its runtime has ended, `alive` is dropped with it, and the
        // next hold starts another task.
        let task = async move {
            // Made first, so that it is dropped last.
            let _ended = TaskEnd(watchdog.clone(), task_runtime);
            let _alive = alive;
            watchdog.run().await;
        };
        #[cfg(test)]
        let Some(task) = crate::exploration::spawn(task) else {
            return;
        };
        drop(runtime.spawn(task));
    }

    /// The task has ended. If it was dropped with its runtime, it continues on another one.
    fn ended(self: &Arc<Self>, task_runtime: Id) {
        let mut ended = SmallVec::<[Id; 2]>::from_iter([task_runtime]);
        let given = self.given_runtime();
        let elsewhere = given.or_else(|| self.tasks.runtime_but(&ended));
        // After a panic, which only code outside this crate causes, it continues on the current runtime.
        let mut elsewhere = elsewhere.or_else(|| Handle::try_current().ok());
        while let Some(runtime) = &elsewhere {
            let mut state = self.state();
            // It has not ended by itself, and no new hold has started another one.
            let is_missing = state.task_runtime.is_some() && state.task.strong_count() == 0;
            if !is_missing {
                return;
            }
            self.start(&mut state, runtime);
            drop(state);
            // A runtime that has ended, too, has dropped the task at once.
            ended.push(runtime.id());
            elsewhere = self.tasks.runtime_but(&ended);
        }
    }
}

struct TaskEnd(Arc<Watchdog>, Id);

impl Drop for TaskEnd {
    fn drop(&mut self) {
        self.0.ended(self.1);
    }
}
