//! The entry of this process in the store.

use std::error::Error;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
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
    /// Its one permit is the task's. Closed at the end of the client.
    task: Arc<Semaphore>,
    /// Becomes `true` at the end of the client. Its receiver is the task's.
    ended: watch::Sender<bool>,
}

struct Entry {
    client: Uuid,
    process: ProcessInfo,
    store: Arc<dyn DynInspect>,
    /// The task does not keep the client alive.
    queues: Weak<Queues>,
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
            }),
            task: Arc::new(Semaphore::new(1)),
            ended: watch::Sender::new(false),
        }
    }

    /// Starts the task, unless it runs or the client has ended.
    pub(super) fn begin(&self) {
        if self.task.available_permits() == 0 {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        // Subscribed before the permit is taken, so that an end which does not prevent this task waits for it.
        let ended = self.ended.subscribe();
        if let Ok(permit) = self.task.clone().try_acquire_owned() {
            drop(runtime.spawn(renew(self.entry.clone(), ended, permit)));
        }
    }

    /// Removes the entry. Returns when it is removed, or the attempt has failed.
    pub(super) async fn end(&self) {
        self.task.close();
        self.ended.send_replace(true);
        self.ended.closed().await;
    }
}

/// Renews the entry until the client ends, and then removes it. When `_permit` is dropped with the task, another may start.
async fn renew(entry: Arc<Entry>, mut ended: watch::Receiver<bool>, _permit: OwnedSemaphorePermit) {
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
