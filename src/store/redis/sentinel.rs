//! Servers behind sentinels: finds the master, and notices when another server becomes the master.
//!
//! For every new connection, the store asks all sentinels at once, and takes the answer with the highest configuration epoch;
//! the first question on the connection is about the server's role. It also asks the sentinels every second, so that connections to a replaced master end
//! even if that master still answers.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::endpoint::Endpoint;
use super::failure::transient;
use super::master::{Master, MasterChanged};
use super::thread::ConnectionThread;
use crate::backoff::jittered;
use crate::error::StoreError;
use crate::owned_task::OwnedTask;
use crate::sync::Mutex;
use crate::telemetry;

mod health;
mod inquiry;
mod reply;

use inquiry::Sentinel;
use reply::SentinelReply;

/// How often the store asks the sentinels for the master; Redisson's interval.
const WATCH: Duration = Duration::from_secs(1);

/// The servers under one master name.
pub(super) struct SentinelGroup {
    sentinels: Box<[Sentinel]>,
    name: String,
    /// Credentials, database and encryption of the servers; host and port are ignored.
    server: Endpoint,
    background: Arc<ConnectionThread>,
    current: watch::Sender<Option<Master>>,
    watching: Mutex<Watching>,
}

/// Protected by one mutex. At most one task runs; after `closed`, none starts.
#[derive(Default)]
struct Watching {
    task: Option<OwnedTask>,
    closed: bool,
}

impl SentinelGroup {
    pub(super) fn new(
        sentinels: impl Iterator<Item = Endpoint>,
        name: String,
        server: Endpoint,
        background: Arc<ConnectionThread>,
    ) -> Self {
        let sentinels = sentinels.map(Sentinel::new);
        Self {
            sentinels: sentinels.collect(),
            name,
            server,
            background,
            current: watch::Sender::new(None),
            watching: Mutex::default(),
        }
    }

    /// The master, and the event that another server is the master.
    pub(super) async fn locate(self: &Arc<Self>) -> Result<(Endpoint, MasterChanged), StoreError> {
        let answer = self.ask().await?;
        self.ensure_watching();
        if !self.learn(&answer) {
            return Err(transient(
                "the sentinels that answer know less than is known already",
            ));
        }
        let master = answer.master;
        let server = self.server.at(&master.host, master.port);
        Ok((
            server,
            MasterChanged::From(master, self.current.subscribe()),
        ))
    }

    /// Asks all sentinels, and takes the answer with the latest failover.
    async fn ask(&self) -> Result<SentinelReply, StoreError> {
        let asking = self.sentinels.iter();
        let asking = asking.map(|sentinel| sentinel.ask(&self.name)).collect();
        let known = || {
            self.current
                .borrow()
                .as_ref()
                .map_or(0, |known| known.epoch)
        };
        reply::gather(asking, known, self.server.timeouts.connect / 2, &self.name).await
    }

    /// Takes in the sentinels' answer. Returns `false` if a minority names a former master: it may be cut off from the
    /// others. A majority is accepted with a lower epoch, because sentinels that were set up anew count from zero.
    fn learn(&self, SentinelReply { master, by_most }: &SentinelReply) -> bool {
        let mut believed = true;
        self.current.send_if_modified(|current| {
            let known = current.as_ref();
            believed = *by_most || known.is_none_or(|known| known.epoch <= master.epoch);
            let moved = known.is_none_or(|known| !known.is_at(master));
            if !believed || known == Some(master) {
                return false;
            }
            if moved && known.is_some() {
                let Master { host, port, .. } = master;
                tracing::warn!(
                    master = self.name,
                    host,
                    port,
                    "another server is the master"
                );
                telemetry::store::failed_over("sentinel");
            }
            *current = Some(master.clone());
            moved
        });
        believed
    }

    /// The task runs on the store's thread, so that it outlives the runtimes of callers.
    fn ensure_watching(self: &Arc<Self>) {
        let mut watching = self.watching.lock();
        let has_ended = watching.task.as_ref().is_none_or(OwnedTask::is_finished);
        if watching.closed || !has_ended {
            return;
        }
        let task = watch(Arc::downgrade(self));
        watching.task = Some(OwnedTask::new(&match self.background.runtime() {
            Some(runtime) => runtime.spawn(task),
            None => tokio::spawn(task),
        }));
    }

    /// Ends the watching task, and the connections to the sentinels.
    pub(super) fn close(&self) {
        let mut watching = self.watching.lock();
        watching.closed = true;
        watching.task = None;
        drop(watching);
        for sentinel in &self.sentinels {
            sentinel.hang_up();
        }
    }
}

/// Asks the sentinels every [`WATCH`], until the store is dropped.
async fn watch(sentinels: Weak<SentinelGroup>) {
    loop {
        sleep(jittered(WATCH)).await;
        let Some(sentinels) = sentinels.upgrade() else {
            return;
        };
        // Without an answer, nothing changes: the master may still be up.
        if let Ok(answer) = sentinels.ask().await {
            sentinels.learn(&answer);
        }
    }
}

fn detail(error: &StoreError) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), ToString::to_string)
}
