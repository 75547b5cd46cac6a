//! Servers behind sentinels: finds the master, and notices when another server becomes the master.
//!
//! For every new connection, the store asks all sentinels at once, takes the answer with the highest configuration epoch,
//! and asks that server for its role. It also asks the sentinels every second, so that connections to a replaced master end
//! even if that master still answers.

use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::endpoint::Endpoint;
use super::failure::{self, failing_over, transient, unreachable};
use super::master::{Master, MasterChanged};
use super::pooled::Taken;
use super::thread::ConnectionThread;
use super::timeouts::Timeouts;
use super::tls;
use crate::backoff::jittered;
use crate::error::StoreError;
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
    timeouts: Timeouts,
    background: Arc<ConnectionThread>,
    current: watch::Sender<Option<Master>>,
    watching: Mutex<Watching>,
}

/// Protected by one mutex. At most one task runs; after `closed`, none starts.
#[derive(Default)]
struct Watching {
    task: Option<JoinHandle<()>>,
    closed: bool,
}

impl SentinelGroup {
    pub(super) fn new(
        sentinels: impl Iterator<Item = Endpoint>,
        name: String,
        server: Endpoint,
        timeouts: Timeouts,
        background: Arc<ConnectionThread>,
    ) -> Self {
        let sentinels = sentinels.map(|endpoint| Sentinel::new(endpoint, timeouts));
        Self {
            sentinels: sentinels.collect(),
            name,
            server,
            timeouts,
            background,
            current: watch::Sender::new(None),
            watching: Mutex::default(),
        }
    }

    /// Opens a connection to the master. The server has confirmed that it is the master.
    pub(super) async fn take(self: &Arc<Self>) -> Result<Taken, StoreError> {
        let master = self.locate().await?;
        let server = self.server_at(&master);
        let named = |error| tls::at(server.address(), error);
        let taken = Taken::open(&server).await;
        let mut taken = taken.map_err(named).map_err(failing_over)?;
        let role = redis::cmd("ROLE");
        let role = taken.raw.handle.send_packed_command(&role);
        let confirmed = match timeout(self.timeouts.response, role).await {
            Ok(Ok(role)) => confirm(&role),
            Ok(Err(error)) => Err(server.late_refusal(failure::no_connection(error)).await),
            Err(_) => Err(silent()),
        };
        confirmed.map_err(named).map_err(failing_over)?;
        taken.master_changed = self.changed_from(master);
        Ok(taken)
    }

    /// The server for subscriptions.
    pub(super) async fn listen(self: &Arc<Self>) -> Result<(Endpoint, MasterChanged), StoreError> {
        let master = self.locate().await?;
        Ok((self.server_at(&master), self.changed_from(master)))
    }

    fn changed_from(&self, master: Master) -> MasterChanged {
        MasterChanged::From(master, self.current.subscribe())
    }

    async fn locate(self: &Arc<Self>) -> Result<Master, StoreError> {
        let master = self.ask().await?;
        self.ensure_watching();
        if !self.learn(&master) {
            return Err(transient(
                "the sentinels that answer know less than is known already",
            ));
        }
        Ok(master.master)
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
        reply::gather(asking, known, self.timeouts.connect / 2, &self.name).await
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

    fn server_at(&self, master: &Master) -> Endpoint {
        self.server.at(&master.host, master.port)
    }

    /// The task runs on the store's thread, so that it outlives the runtimes of callers.
    fn ensure_watching(self: &Arc<Self>) {
        let mut watching = self.watching.lock();
        let has_ended = watching.task.as_ref().is_none_or(JoinHandle::is_finished);
        if watching.closed || !has_ended {
            return;
        }
        let task = watch(Arc::downgrade(self));
        watching.task = Some(match self.background.runtime() {
            Some(runtime) => runtime.spawn(task),
            None => tokio::spawn(task),
        });
    }

    /// Ends the watching task, and the connections to the sentinels.
    pub(super) fn close(&self) {
        let mut watching = self.watching.lock();
        watching.closed = true;
        if let Some(task) = watching.task.take() {
            task.abort();
        }
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

/// Checks that the server's role is master.
fn confirm(role: &Value) -> Result<(), StoreError> {
    match role {
        Value::ServerError(error) => Err(failure::refusal(error.clone())),
        Value::Array(parts) if matches!(parts.first(), Some(Value::BulkString(role)) if role == b"master") => {
            Ok(())
        }
        _ => Err(transient(
            "the server that the sentinels name is not a master now",
        )),
    }
}

fn detail(error: &StoreError) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), ToString::to_string)
}

fn silent() -> StoreError {
    unreachable("the server that the sentinels name did not answer in time")
}
