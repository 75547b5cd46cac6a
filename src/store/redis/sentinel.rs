//! Servers behind sentinels: which of them is the master, and when it is another one.
//!
//! Every new connection asks all sentinels at once, takes the word of the one with the highest configuration epoch, and
//! has the server itself say that it is a master. Besides, they are asked every second, so that a master that was replaced
//! behind our back is left even if it still answers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deadpool_redis::{Connection, Pool, PoolConfig};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{Client, ConnectionAddr, ConnectionInfo, Value};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use super::failure::{self, failing_over, more_telling};
use super::pool::{new_pool, no_connection};
use super::timeouts::Timeouts;
use super::tls;
use crate::error::{StoreError, StoreErrorKind};

mod inquiry;
mod master;
mod survey;

use inquiry::Sentinel;
pub(super) use master::{Departure, Master};
pub(super) use survey::Survey;

/// How often the sentinels are asked whether the master is still the same one; Redisson's interval.
const WATCH: Duration = Duration::from_secs(1);

/// How long the first sentinel's answer waits for those that may know better.
const GRACE: Duration = Duration::from_millis(250);

/// What the sentinels say, and whether more than half of them were heard.
struct Word {
    master: Master,
    by_most: bool,
}

/// The servers of one master's name.
pub(super) struct Sentinels {
    sentinels: Box<[Sentinel]>,
    name: String,
    /// Credentials, database and encryption of the servers; the place is of no account.
    server: ConnectionInfo,
    config: PoolConfig,
    timeouts: Timeouts,
    current: watch::Sender<Option<Master>>,
    pool: Mutex<Option<(Master, Pool)>>,
    watching: Mutex<Option<JoinHandle<()>>>,
}

impl Sentinels {
    pub(super) fn new(
        sentinels: Vec<ConnectionInfo>,
        name: String,
        server: ConnectionInfo,
        config: PoolConfig,
        timeouts: Timeouts,
    ) -> Self {
        let sentinels = sentinels.into_iter();
        Self {
            sentinels: sentinels
                .map(|address| Sentinel::new(address, timeouts))
                .collect(),
            name,
            server,
            config,
            timeouts,
            current: watch::Sender::new(None),
            pool: Mutex::default(),
            watching: Mutex::default(),
        }
    }

    pub(super) fn room(&self) -> usize {
        self.config.max_size
    }

    /// A connection to the master, which has confirmed that it is one.
    pub(super) async fn take(self: &Arc<Self>) -> Result<(Connection, Departure), StoreError> {
        let master = self.locate().await?;
        let pool = self.pool_for(&master)?;
        let server = self.server_at(&master);
        let named = |error| tls::at(server.addr(), error);
        let connection = pool.get().await.map_err(no_connection);
        let connection = connection.map_err(named).map_err(failing_over)?;
        let mut handle = (*connection).clone();
        handle.set_response_timeout(self.timeouts.response);
        let role = handle.send_packed_command(&redis::cmd("ROLE")).await;
        let confirmed = match role.map_err(failure::no_connection) {
            Ok(role) => confirm(&role),
            Err(error) => Err(tls::objection(&server, self.timeouts, error).await),
        };
        match confirmed.map_err(named) {
            Ok(()) => Ok((connection, self.departure(master))),
            Err(error) => {
                // It shall not be had from the pool again.
                drop(Connection::take(connection));
                Err(failing_over(error))
            }
        }
    }

    /// Where to listen.
    pub(super) async fn listen(self: &Arc<Self>) -> Result<(Client, Departure), StoreError> {
        let master = self.locate().await?;
        let client = Client::open(self.server_at(&master)).map_err(failure::no_connection)?;
        Ok((client, self.departure(master)))
    }

    fn departure(&self, master: Master) -> Departure {
        Departure::From(master, self.current.subscribe())
    }

    async fn locate(self: &Arc<Self>) -> Result<Master, StoreError> {
        let master = self.ask().await?;
        self.ensure_watching();
        if !self.learn(&master) {
            return Err(StoreError::new(
                StoreErrorKind::Transient,
                "the sentinels that answer know less than is known already",
            ));
        }
        Ok(master.master)
    }

    /// Asks all sentinels, and believes the one that has seen the latest failover.
    async fn ask(&self) -> Result<Word, StoreError> {
        let asking = self
            .sentinels
            .iter()
            .map(|sentinel| sentinel.ask(&self.name));
        let mut asking: FuturesUnordered<_> = asking.collect();
        let mut over = Instant::now() + self.timeouts.connect / 2;
        let (mut best, mut failed) = (None::<Master>, None::<StoreError>);
        let (mut told, mut unknown) = (0, false);
        let most = self.sentinels.len() / 2 + 1;
        while told < most {
            let answer = tokio::select! {
                answer = asking.next() => answer,
                () = sleep_until(over) => None,
            };
            match answer {
                Some(Ok(Some(master))) => {
                    told += 1;
                    over = over.min(Instant::now() + GRACE);
                    if best.as_ref().is_none_or(|best| best.epoch < master.epoch) {
                        best = Some(master);
                    }
                }
                Some(Ok(None)) => unknown = true,
                Some(Err(error)) => failed = Some(more_telling(failed, error)),
                None => break,
            }
        }
        let word = best.map(|master| Word {
            master,
            by_most: told >= most,
        });
        word.ok_or_else(|| match (unknown, failed) {
            (true, _) => StoreError::new(
                StoreErrorKind::Refused,
                format!("the sentinels know no master named `{}`", self.name),
            ),
            (false, Some(error)) => StoreError::new(
                error.kind(),
                format!(
                    "no sentinel says where `{}` is: {}",
                    self.name,
                    detail(&error)
                ),
            ),
            (false, None) => StoreError::new(
                StoreErrorKind::Unreachable,
                format!("no sentinel said in time where `{}` is", self.name),
            ),
        })
    }

    /// Takes the sentinels' word, and says whether it could: a few that were cut off from the others are not believed when
    /// they name a former master. All of them may have been set up anew, and count from the beginning.
    fn learn(&self, Word { master, by_most }: &Word) -> bool {
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
            }
            *current = Some(master.clone());
            moved
        });
        believed
    }

    /// The pool of this master. Those of former ones go when their last connection does.
    fn pool_for(&self, master: &Master) -> Result<Pool, StoreError> {
        let mut kept = lock(&self.pool);
        match &*kept {
            Some((known, pool)) if known.is_at(master) => Ok(pool.clone()),
            _ => {
                let pool = new_pool(self.server_at(master), self.config, self.timeouts)?;
                *kept = Some((master.clone(), pool.clone()));
                Ok(pool)
            }
        }
    }

    fn server_at(&self, master: &Master) -> ConnectionInfo {
        let (host, port) = (master.host.clone(), master.port);
        self.server.clone().set_addr(match self.server.addr() {
            ConnectionAddr::TcpTls {
                insecure,
                tls_params,
                ..
            } => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(host, port),
        })
    }

    fn ensure_watching(self: &Arc<Self>) {
        let mut watching = lock(&self.watching);
        if watching.as_ref().is_none_or(JoinHandle::is_finished) {
            let sentinels = Arc::downgrade(self);
            *watching = Some(tokio::spawn(async move {
                loop {
                    sleep(WATCH.mul_f64(0.75 + fastrand::f64() / 4.0)).await;
                    let Some(sentinels) = sentinels.upgrade() else {
                        return;
                    };
                    // Without an answer, everything stays as it is: the master may be well.
                    if let Ok(word) = sentinels.ask().await {
                        sentinels.learn(&word);
                    }
                }
            }));
        }
    }

    /// Ends the task that watches, and lets go of the connections.
    pub(super) fn close(&self) {
        *lock(&self.pool) = None;
        if let Some(watching) = lock(&self.watching).take() {
            watching.abort();
        }
        for sentinel in &self.sentinels {
            sentinel.hang_up();
        }
    }
}

/// Whether a server calls itself a master.
fn confirm(role: &Value) -> Result<(), StoreError> {
    match role {
        Value::ServerError(error) => Err(failure::refusal(error.clone())),
        Value::Array(parts) if matches!(parts.first(), Some(Value::BulkString(role)) if role == b"master") => {
            Ok(())
        }
        _ => Err(StoreError::new(
            StoreErrorKind::Transient,
            "the server that the sentinels name is not a master now",
        )),
    }
}

fn detail(error: &StoreError) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), ToString::to_string)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
