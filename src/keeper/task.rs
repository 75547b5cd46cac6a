//! A background task that goes on on another runtime when its own ends.

use std::future::Future;
use std::sync::{Arc, Weak};

use tokio::runtime::{Handle, Id};

/// A task, and where it runs.
#[derive(Default)]
pub(super) struct Task {
    /// `None` if it has not begun, or has ended by itself.
    home: Option<Id>,
    alive: Weak<()>,
    /// Another runtime that had something for it lately: it takes over when the task's own ends.
    spare: Option<Handle>,
}

impl Task {
    pub(super) fn is_running(&self) -> bool {
        self.alive.strong_count() > 0
    }

    /// Starts it on `runtime`. When it ends, or is dropped with its runtime, `ended` is called, after everything that
    /// `work` made was dropped; not if the runtime has ended already.
    pub(super) fn start(
        &mut self,
        runtime: &Handle,
        work: impl Future<Output = ()> + Send + 'static,
        ended: impl FnOnce() + Send + 'static,
    ) {
        let alive = Arc::new(());
        self.alive = Arc::downgrade(&alive);
        self.home = Some(runtime.id());
        let task = async move {
            // Made first, so that it is dropped last.
            let _ending = Ending(Some(ended));
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
    pub(super) fn finish(&mut self) {
        self.home = None;
        self.alive = Weak::new();
    }

    /// Remembers the runtime of somebody who has something for it, if it is another; returns the one remembered before,
    /// which is not to be dropped under a mutex: the last handle of a runtime that has ended may take more along.
    pub(super) fn note(&mut self, here: Option<&Handle>) -> Option<Handle> {
        let here = here?;
        match self.home == Some(here.id()) {
            true => None,
            false => self.spare.replace(here.clone()),
        }
    }

    /// It has ended: whether that was with its runtime, and where it can go on.
    pub(super) fn ended(&mut self) -> Option<Option<Handle>> {
        self.home.take()?;
        self.alive = Weak::new();
        Some(self.spare.take())
    }
}

struct Ending<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for Ending<F> {
    fn drop(&mut self) {
        if let Some(ended) = self.0.take() {
            ended();
        }
    }
}
