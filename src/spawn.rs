//! Where the background work of a client runs.

use std::sync::OnceLock;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::error::LockError;

/// The runtime of a client's background work, which never changes: that of the store, else the one that was given to the client, else
/// that of its first request. Two kinds of work begin nearer to their callers, and go on here if that runtime ends: the questions of
/// requests that wait, and the releases of dropped guards.
///
/// Its first task is the keeper, which lives as long as the client. It ends before only with its runtime, so it tells whether that
/// still runs.
#[derive(Debug)]
pub(crate) struct Spawner {
    given: Option<Handle>,
    runtime: OnceLock<Handle>,
    /// Set just after the runtime.
    keeper: OnceLock<JoinHandle<()>>,
    /// The work for whose end a shutdown waits.
    pub(crate) tracker: TaskTracker,
    /// Cancelled when the client ends.
    pub(crate) stop: CancellationToken,
}

impl Spawner {
    pub(crate) fn new(given: Option<Handle>) -> Self {
        Self {
            given,
            runtime: OnceLock::new(),
            keeper: OnceLock::new(),
            tracker: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    /// Chooses the runtime, at the first call, and starts the `keeper` on it.
    ///
    /// # Errors
    ///
    /// `Invalid` if there is no runtime, or it has ended.
    pub(crate) fn ready<F>(
        &self,
        of_store: impl FnOnce() -> Option<Handle>,
        keeper: impl FnOnce() -> F,
    ) -> Result<(), LockError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if self.runtime.get().is_none() {
            let runtime = of_store().or_else(|| self.given.clone());
            let Some(runtime) = runtime.or_else(|| Handle::try_current().ok()) else {
                return Err(LockError::invalid(
                    "a lock is renewed in the background, and there is no runtime here: take it inside a tokio runtime, or give \
                     the client one by `LockClient::builder(store).runtime(handle)`",
                ));
            };
            if self.runtime.set(runtime.clone()).is_ok()
                && let Some(keeper) = spawn(&runtime, keeper())
            {
                // Only the caller that has set the runtime sets it.
                drop(self.keeper.set(keeper));
            }
        }
        match self.keeper.get().is_some_and(JoinHandle::is_finished) {
            true => Err(LockError::invalid(
                "the runtime of the client's background work has ended: make a new client, or give it a runtime that lives as \
                 long by `LockClient::builder(store).runtime(handle)`",
            )),
            false => Ok(()),
        }
    }

    /// Runs work to its end. It never blocks, and works outside a runtime. On a runtime that has ended, nothing happens: what the work
    /// would release ends with its lease.
    pub(crate) fn run(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.run_untracked(self.tracker.track_future(work));
    }

    /// The same on the caller's runtime, because it is near those who wait for the work, and each step to another thread takes longer
    /// than the work. Not on one that stands still between two `block_on`. Work that is dropped there must go on by [`run`](Self::run).
    pub(crate) fn run_near(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.run_on(Self::near(), work);
    }

    /// The same where the caller has asked for [`near`](Self::near), and may have decided against it.
    pub(crate) fn run_on(
        &self,
        near: Option<Handle>,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        match near {
            Some(near) => drop(spawn(&near, self.tracker.track_future(work))),
            None => self.run(work),
        }
    }

    /// The caller's runtime, if work may run there.
    pub(crate) fn near() -> Option<Handle> {
        let near = Handle::try_current().ok();
        near.filter(|near| near.runtime_flavor() == RuntimeFlavor::MultiThread)
    }

    /// The same for work that lasts as long as the client: a shutdown does not wait for it.
    pub(crate) fn run_untracked(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = self.runtime.get() {
            drop(spawn(runtime, work));
        }
    }

    /// Waits until all work is done.
    pub(crate) async fn drained(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}

fn spawn(
    runtime: &Handle,
    work: impl Future<Output = ()> + Send + 'static,
) -> Option<JoinHandle<()>> {
    #[cfg(test)]
    let work = crate::exploration::spawn(work)?;
    Some(runtime.spawn(work))
}
