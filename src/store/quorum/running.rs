//! Tasks that continue after their question is answered.

use std::future::Future;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Counts the tasks with an operation under way in a store: a question whose majority has answered, or a clean-up.
///
/// The count rises before a task is spawned and falls when it ends or is dropped.
#[derive(Clone)]
pub(super) struct RunningTasks(watch::Sender<usize>);

impl Default for RunningTasks {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl RunningTasks {
    /// Spawns a task that is counted.
    pub(super) fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.0.send_modify(|count| *count += 1);
        let counted = RunningTask(self.0.clone());
        tokio::spawn(async move {
            let _counted = counted;
            task.await
        })
    }

    /// Waits until no task is under way, but not longer than `limit`.
    pub(super) async fn ended(&self, limit: Duration) {
        let mut count = self.0.subscribe();
        // A store that does not answer in time does not block the caller.
        let _ = timeout(limit, count.wait_for(|count| *count == 0)).await;
    }
}

struct RunningTask(watch::Sender<usize>);

impl Drop for RunningTask {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
