//! Servers behind sentinels: finds the master, and notices when another server becomes the master.
//!
//! The store keeps one connection to each sentinel, and asks on it whenever it wants to know: for every new connection,
//! whose first question is then about the server's role, and every second, so that connections to a replaced master end even if that
//! master still answers. Each question is a task of its own, which is answered to its end: its connection stays. The answer with the
//! highest configuration epoch counts. `SentinelClient` of the `redis` crate believes the first sentinel that answers, knows no
//! epochs, and does not tell of a failover (redis-rs 1.8, `sentinel.rs`).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::address::Address;
use super::endpoint::{Endpoint, RawConnection};
use super::thread::ConnectionThread;
use crate::backoff::jittered;
use crate::error::StoreError;
use crate::store::redis::protocol::failure::{transient, unreachable};
use crate::sync::Mutex;
use crate::telemetry;

mod question;
mod reply;

/// How often the store asks the sentinels for the master; Redisson's interval.
const WATCH: Duration = Duration::from_secs(1);

/// How long a majority must name a former master until it is believed: a sentinel that has promoted another server may have failed
/// before it told the others.
const DOUBT: Duration = Duration::from_secs(10);

/// The sentinels of a store, and the task that watches them.
pub(crate) struct WatchedSentinels {
    pub(crate) group: Arc<SentinelGroup>,
    /// It starts with the first connection, and ends with this.
    task: OnceLock<AbortOnDropHandle<()>>,
}

/// The servers under one master name.
pub(crate) struct SentinelGroup {
    sentinels: Box<[Arc<Sentinel>]>,
    name: Arc<str>,
    /// Credentials, database and encryption of the servers; host and port are ignored.
    pub(crate) server: Endpoint,
    background: Arc<ConnectionThread>,
    current: watch::Sender<Option<Master>>,
    /// Since when a majority names a former master. Protected by the mutex alone.
    older_since: Mutex<Option<Instant>>,
}

/// One sentinel.
struct Sentinel {
    endpoint: Endpoint,
    /// The connection of the last question, which has it while it is under way.
    kept: tokio::sync::Mutex<Option<RawConnection>>,
}

impl Sentinel {
    /// The master that it names; `None` if it knows no master of that name.
    async fn ask(self: Arc<Self>, name: Arc<str>) -> Result<Option<Master>, StoreError> {
        let limit = self.endpoint.timeouts.connect;
        let late = || unreachable("it took too long");
        // It waits no longer for those before it than they may take, and has all of that time for itself.
        let kept = timeout(limit, self.kept.lock()).await;
        let mut kept = kept.map_err(|_| late())?;
        let asking = question::ask(&self.endpoint, &name, &mut kept);
        timeout(limit, asking).await.unwrap_or_else(|_| Err(late()))
    }
}

/// The master's address, as a sentinel names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Master {
    pub(crate) address: Address,
    /// Rises with every failover.
    pub(crate) epoch: u64,
}

/// The master that a connection leads to, and what the sentinels name since.
#[derive(Clone)]
pub(crate) struct FollowedMaster {
    pub(crate) master: Master,
    current: watch::Receiver<Option<Master>>,
}

impl FollowedMaster {
    /// `None` if `current` is another server.
    pub(crate) fn new(master: Master, current: watch::Receiver<Option<Master>>) -> Option<Self> {
        let is_at = |now: &Master| now.address == master.address;
        let is_current = current.borrow().as_ref().is_some_and(is_at);
        is_current.then_some(Self { master, current })
    }

    /// Whether the sentinels name another server by now.
    pub(super) fn is_replaced(&self) -> bool {
        self.current.has_changed().unwrap_or(true)
    }

    /// Returns when the sentinels name another server; `false` if the store has ended.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(crate) async fn replaced(&mut self) -> bool {
        self.current.changed().await.is_ok()
    }
}

impl WatchedSentinels {
    pub(crate) fn new(
        sentinels: impl Iterator<Item = Endpoint>,
        name: String,
        server: Endpoint,
        background: Arc<ConnectionThread>,
    ) -> Self {
        let sentinel = |endpoint| Sentinel {
            endpoint,
            kept: tokio::sync::Mutex::default(),
        };
        let group = SentinelGroup {
            sentinels: sentinels.map(sentinel).map(Arc::new).collect(),
            name: name.into(),
            server,
            background,
            current: watch::Sender::new(None),
            older_since: Mutex::default(),
        };
        Self {
            group: Arc::new(group),
            task: OnceLock::new(),
        }
    }

    /// The master.
    pub(super) async fn locate(&self) -> Result<(Endpoint, FollowedMaster), StoreError> {
        let watching = || self.group.background.spawn(watch(self.group.clone()));
        self.task.get_or_init(watching);
        let (master, told) = self.group.ask().await?;
        self.group.take_in(&master, told);
        let server = self.group.server.at(&master.address);
        let followed = FollowedMaster::new(master, self.group.current.subscribe());
        let known = || transient("the sentinels that answer know less than is known already");
        Ok((server, followed.ok_or_else(known)?))
    }
}

/// Asks the sentinels every [`WATCH`], until the store is dropped.
async fn watch(sentinels: Arc<SentinelGroup>) {
    loop {
        sleep(jittered(WATCH)).await;
        // Without an answer, nothing changes: the master may still be up.
        if let Ok((master, told)) = sentinels.ask().await {
            sentinels.take_in(&master, told);
        }
    }
}

impl SentinelGroup {
    /// Asks all sentinels. Returns the answer with the latest failover, and how many of them know nothing newer.
    async fn ask(&self) -> Result<(Master, usize), StoreError> {
        let answers = self.sentinels.iter().map(|sentinel| {
            let asking = sentinel.clone().ask(self.name.clone());
            let asking = self.background.spawn(asking).detach();
            async { asking.await.unwrap_or_else(|gone| Err(unreachable(gone))) }
        });
        let known = || self.current.borrow().clone();
        let limit = self.server.timeouts.connect / 2;
        reply::gather(answers.collect(), known, limit, &self.name).await
    }

    /// Asks each sentinel these two questions about the master, on a connection of its own and with the time limit for connecting.
    pub(crate) async fn ask_each(
        &self,
        questions: [&str; 2],
    ) -> Vec<(&Endpoint, Result<Vec<Value>, StoreError>)> {
        let endpoints = self.sentinels.iter().map(|sentinel| &sentinel.endpoint);
        let asking = endpoints.map(|sentinel| async move {
            let mut none = None;
            let answers = question::answers(sentinel, questions, &self.name, &mut none);
            let answers = timeout(self.server.timeouts.connect, answers).await;
            (
                sentinel,
                answers.unwrap_or_else(|_| Err(unreachable("it took too long"))),
            )
        });
        join_all(asking).await
    }

    /// Takes in the sentinels' answer, unless they name a former master: a minority may be cut off from the others, and a majority
    /// may not know of a failover. A lower epoch is accepted from all sentinels, or from a majority for [`DOUBT`], because
    /// sentinels that were set up anew count from zero.
    fn take_in(&self, master: &Master, told: usize) {
        let (mut before, mut is_new) = (None, false);
        self.current.send_if_modified(|current| {
            let known = current.as_ref();
            let is_older = known.is_some_and(|known| master.epoch < known.epoch);
            if !self.believes(told, is_older) || known == Some(master) {
                return false;
            }
            is_new = known.is_none_or(|known| known.address != master.address);
            before = current.replace(master.clone());
            is_new
        });
        if is_new && before.is_some() {
            let (name, Address { host, port }) = (&*self.name, &master.address);
            tracing::warn!(master = name, %host, port, "another server is the master");
            telemetry::store::failed_over("sentinel");
        }
    }

    /// Whether an answer of so many sentinels is believed.
    fn believes(&self, told: usize, is_older: bool) -> bool {
        let mut since = self.older_since.lock();
        if !is_older {
            *since = None;
        }
        let (all, now) = (self.sentinels.len(), Instant::now());
        !is_older || told == all || told > all / 2 && *since.get_or_insert(now) + DOUBT <= now
    }
}

/// The text of an error's source, or of the error if it has none.
pub(crate) fn detail(error: &StoreError) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;
    use crate::store::redis::link::endpoint::access::Access;
    use crate::store::redis::link::endpoint::tls::Tls;
    use crate::store::redis::link::timeouts::Timeouts;

    fn group() -> WatchedSentinels {
        let address = "redis://127.0.0.1:1".into_connection_info().unwrap();
        let tls = Tls::default().config([&address]).unwrap();
        let endpoint = Endpoint::new(address, tls, Timeouts::default(), Access::default());
        let sentinels = [(); 3].into_iter().map(|()| endpoint.clone());
        WatchedSentinels::new(
            sentinels,
            "main".to_owned(),
            endpoint.clone(),
            Arc::default(),
        )
    }

    /// A sentinel promoted a server and failed before it told the others: these name the former master until the next failover.
    #[tokio::test(start_paused = true)]
    async fn a_majority_that_names_a_former_master_is_not_believed_at_once() {
        let sentinels = group();
        let take_in = |port, epoch, told| {
            let address = Address::new("localhost", port);
            let master = Master { address, epoch };
            sentinels.group.take_in(&master, told);
            let current = sentinels.group.current.borrow();
            current.as_ref().map(|master| master.address.port)
        };
        assert_eq!(take_in(6380, 5, 1), Some(6380));
        assert_eq!(take_in(6379, 4, 1), Some(6380));
        assert_eq!(take_in(6379, 4, 2), Some(6380));
        sleep(DOUBT / 2).await;
        assert_eq!(take_in(6379, 4, 2), Some(6380));
        sleep(DOUBT / 2).await;
        assert_eq!(take_in(6379, 4, 2), Some(6379), "they stay with it");

        assert_eq!(take_in(6380, 5, 1), Some(6380));
        assert_eq!(take_in(6379, 4, 2), Some(6380), "a new doubt");
        assert_eq!(take_in(6379, 4, 3), Some(6379), "they count anew");
    }

    #[tokio::test]
    async fn a_sentinel_that_hangs_is_not_waited_for_when_the_store_is_dropped() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("redis://{}", listener.local_addr().unwrap());
        let address = address.into_connection_info().unwrap();
        let hour = Duration::from_secs(3600);
        let (connect, response) = (hour, hour);
        let tls = Tls::default().config([&address]).unwrap();
        let timeouts = Timeouts {
            connect,
            response,
            ..Timeouts::default()
        };
        let endpoint = Endpoint::new(address, tls, timeouts, Access::default());
        let endpoints = [endpoint.clone()].into_iter();
        let thread = Arc::default();
        let store = WatchedSentinels::new(endpoints, "main".to_owned(), endpoint, thread);
        let (mut asking, _) = tokio::select! {
            _ = store.locate() => panic!("it hangs"),
            accepted = listener.accept() => accepted.unwrap(),
        };
        drop(store);
        let mut asked = Vec::new();
        let ended = timeout(10 * WATCH, asking.read_to_end(&mut asked)).await;
        assert!(ended.is_ok(), "the question is still under way");
    }
}
