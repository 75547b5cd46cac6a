//! Tasks that end with their owner.

use tokio::task::{AbortHandle, JoinHandle};

/// A task that is aborted when this is dropped.
#[derive(Debug)]
pub(crate) struct OwnedTask(AbortHandle);

impl OwnedTask {
    pub(crate) fn new<T>(task: &JoinHandle<T>) -> Self {
        Self(task.abort_handle())
    }

    #[cfg(feature = "redis")]
    pub(crate) fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl Drop for OwnedTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}
