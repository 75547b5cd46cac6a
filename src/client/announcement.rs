//! The entry of this process in the store.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use uuid::Uuid;

use crate::error::StoreError;
use crate::queue::Queues;
use crate::store::{DynInspect, MAX_ROUTES, ProcessInfo};

/// How often the entry is renewed. It has the routes of the present holders.
const PERIOD: Duration = Duration::from_secs(20);

/// How long the store keeps an entry that is not renewed.
const LIFETIME: Duration = Duration::from_secs(3 * 60);

/// Keeps the entry of a client in the store, from its first request to its end.
///
/// One task renews it. The task runs on the runtime of the request that started it. When that runtime ends, the next
/// request starts another task.
pub(super) struct Announcement {
    entry: Arc<Entry>,
    /// Becomes `true` at the end of the client. Its receiver is the task's.
    ended: watch::Sender<bool>,
}

struct Entry {
    client: Uuid,
    process: ProcessInfo,
    store: Arc<dyn DynInspect>,
    /// The task does not keep the client alive.
    queues: Weak<Queues>,
    /// Whether the task runs.
    runs: AtomicBool,
}

impl Announcement {
    pub(super) fn new(
        client: Uuid,
        process: ProcessInfo,
        store: Arc<dyn DynInspect>,
        queues: &Arc<Queues>,
    ) -> Self {
        Self {
            entry: Arc::new(Entry {
                client,
                process,
                store,
                queues: Arc::downgrade(queues),
                runs: AtomicBool::new(false),
            }),
            ended: watch::Sender::new(false),
        }
    }

    /// Starts the task, unless it runs or the client has ended.
    pub(super) fn begin(&self) {
        let runs = &self.entry.runs;
        if runs.load(Ordering::Relaxed) {
            return;
        }
        // Subscribed before the look, so that an end that is not seen waits for this task.
        let ended = self.ended.subscribe();
        if *ended.borrow() {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if !runs.swap(true, Ordering::AcqRel) {
            let running = Running(self.entry.clone());
            drop(runtime.spawn(renew(running, ended)));
        }
    }

    /// Removes the entry. Returns when it is removed, or the attempt has failed.
    pub(super) async fn end(&self) {
        self.ended.send_replace(true);
        self.ended.closed().await;
    }
}

/// Held by the task. Dropping it lets another task start.
struct Running(Arc<Entry>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.runs.store(false, Ordering::Release);
    }
}

/// Renews the entry until the client ends, and then removes it.
async fn renew(running: Running, mut ended: watch::Receiver<bool>) {
    let entry = &running.0;
    let mut has_failed = false;
    loop {
        match entry.keep(LIFETIME).await {
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
        // An error means that the last clone of the client was dropped.
        let end = ended.wait_for(|ended| *ended);
        if tokio::time::timeout(PERIOD, end).await.is_ok() {
            break;
        }
    }
    if let Err(error) = entry.keep(Duration::ZERO).await {
        let error = &error as &dyn Error;
        tracing::debug!(
            error,
            "could not remove the entry of this process; it expires"
        );
    }
}

impl Entry {
    async fn keep(&self, lifetime: Duration) -> Result<(), StoreError> {
        let queues = self.queues.upgrade();
        let routes = queues.map(|queues| queues.routes(MAX_ROUTES));
        let process = self.process.with_routes(routes.unwrap_or_default());
        self.store.announce(self.client, &process, lifetime).await
    }
}
