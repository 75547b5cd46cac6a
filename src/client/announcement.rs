//! The entry of this process in the store.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::error::StoreError;
use crate::release::Core;
use crate::store::{DynInspect, MAX_ROUTES, ProcessInfo};

/// How often the entry is renewed. It has the routes of the present holders.
const PERIOD: Duration = Duration::from_secs(20);

/// How long the store keeps an entry that is not renewed.
const LIFETIME: Duration = Duration::from_secs(3 * 60);

/// Keeps the entry of a client in the store, from its first request to its end. One task renews it.
pub(super) struct Announcement {
    entry: Arc<ProcessEntry>,
    begun: AtomicBool,
    ended: CancellationToken,
    task: TaskTracker,
}

struct ProcessEntry {
    process: ProcessInfo,
    store: Arc<dyn DynInspect>,
}

impl Announcement {
    pub(super) fn new(process: ProcessInfo, store: Arc<dyn DynInspect>) -> Self {
        Self {
            entry: Arc::new(ProcessEntry { process, store }),
            begun: AtomicBool::new(false),
            ended: CancellationToken::new(),
            task: TaskTracker::new(),
        }
    }

    /// Starts the task, unless it was started.
    pub(super) fn begin(&self, core: &Arc<Core>) {
        if !self.begun.load(Ordering::Relaxed) && !self.begun.swap(true, Ordering::AcqRel) {
            let (entry, ended) = (self.entry.clone(), self.ended.clone());
            let renewing = renew(entry, core.id, Arc::downgrade(core), ended);
            core.spawner.run_untracked(self.task.track_future(renewing));
        }
    }

    /// Removes the entry. Returns when it is removed, or the attempt has failed.
    pub(super) async fn end(&self) {
        self.ended.cancel();
        self.task.close();
        self.task.wait().await;
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

/// Renews the entry until the client ends, and then removes it.
async fn renew(entry: Arc<ProcessEntry>, client: Uuid, core: Weak<Core>, ended: CancellationToken) {
    let mut has_failed = false;
    while !ended.is_cancelled() {
        match entry.keep(client, &core, LIFETIME).await {
            Ok(()) => has_failed = false,
            Err(error) => {
                let error = &error as &dyn Error;
                match has_failed {
                    true => tracing::debug!(error, "could not announce this process"),
                    false => tracing::warn!(error, "could not announce this process"),
                }
                has_failed = true;
            }
        }
        drop(timeout(PERIOD, ended.cancelled()).await);
    }
    if let Err(error) = entry.keep(client, &core, Duration::ZERO).await {
        let error = &error as &dyn Error;
        tracing::debug!(
            error,
            "could not remove the entry of this process; it expires"
        );
    }
}

impl ProcessEntry {
    async fn keep(
        &self,
        client: Uuid,
        core: &Weak<Core>,
        lifetime: Duration,
    ) -> Result<(), StoreError> {
        let routes = core.upgrade().map(|core| core.table.routes(MAX_ROUTES));
        let process = self.process.with_routes(routes.unwrap_or_default());
        self.store.announce(client, &process, lifetime).await
    }
}
