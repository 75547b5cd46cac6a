//! Tasks that continue after their question is answered.

use std::future::Future;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The tasks with an operation under way in a store: a question whose majority has answered, or a clean-up.
///
/// Each task has a receiver, from before it is spawned until it ends or is dropped.
#[derive(Clone)]
pub(super) struct RunningTasks(watch::Sender<()>);

impl Default for RunningTasks {
    fn default() -> Self {
        Self(watch::Sender::new(()))
    }
}

impl RunningTasks {
    /// Spawns a task that is waited for.
    pub(super) fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let running = self.enter();
        tokio::spawn(async move {
            let _running = running;
            task.await
        })
    }

    /// The caller is under way until it drops this.
    pub(super) fn enter(&self) -> watch::Receiver<()> {
        self.0.subscribe()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.receiver_count() == 0
    }

    /// Waits until no task is under way, but not longer than `limit`.
    pub(super) async fn ended(&self, limit: Duration) {
        // A store that does not answer in time does not block the caller.
        let _ = timeout(limit, self.0.closed()).await;
    }
}
