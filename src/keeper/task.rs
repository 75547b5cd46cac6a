//! A background task that may have to be started again.

use std::future::Future;
use std::sync::{Arc, Weak};

use tokio::runtime::Handle;

/// The task, if it has been started; it may have ended with its runtime.
#[derive(Default)]
pub(super) struct Task {
    alive: Weak<()>,
}

impl Task {
    pub(super) fn is_running(&self) -> bool {
        self.alive.strong_count() > 0
    }

    /// Starts it on `runtime`. A runtime that has ended drops it at once.
    pub(super) fn start(
        &mut self,
        runtime: &Handle,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let alive = Arc::new(());
        self.alive = Arc::downgrade(&alive);
        let task = async move {
            let _alive = alive;
            work.await;
        };
        #[cfg(test)]
        let Some(task) = crate::exploration::spawn(task) else {
            return;
        };
        drop(runtime.spawn(task));
    }

    /// It has nothing left to do, and ends.
    pub(super) fn over(&mut self) {
        self.alive = Weak::new();
    }
}
