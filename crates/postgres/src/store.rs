//! The store.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use deadpool_postgres::{
    Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime,
};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::types::ToSql;
use tokio_postgres::{NoTls, Row};
use tower_distributed_lock::audit::{Audit, Deployment, Warning};
use tower_distributed_lock::error::{StoreError, StoreErrorKind};
use tower_distributed_lock::lock::Hold;
use tower_distributed_lock::store::{
    Attempt, Capabilities, Feature, Grant, HoldStatus, Holder, Inspect, Inspection, LATENESS,
    LockStore, Outcome, Record, Released, Renewal, SeveralOutcome, Unsupported, WAITER_LIVENESS,
    Wakeups, Want,
};
use tower_distributed_lock::{FencingToken, LockKey, LockMode};

use crate::config::{self, LIMIT};
use crate::listener::Listener;
use crate::value::{Names, asked, channel, duration, failure, micros};

/// How many connections a store has at most, beside the one that listens.
const CONNECTIONS: usize = 8;

/// The longest key, in bytes. An entry of an index has to fit into a page, and a message into 8000 bytes.
const LONGEST_KEY: usize = 1000;

/// How many tokens may be reserved with one: `schema.sql` leaves so much room.
const RESERVED: u32 = 1 << 20;

/// Locks in a PostgreSQL database, shared by all processes that use it. A clone shares the connections.
#[derive(Debug, Clone)]
pub struct PostgresStore {
    pool: Pool,
    listener: Arc<Listener>,
    /// What ends with the last clone.
    _background: Arc<Background>,
}

/// Tasks that end with their owner.
#[derive(Debug)]
struct Background([JoinHandle<()>; 2]);

impl Drop for Background {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

impl PostgresStore {
    /// A store in the database that `config` names, in the form `host=… port=… user=… dbname=…` or as a URL. A connection that
    /// is lost later is replaced.
    ///
    /// It must be called in a Tokio runtime, which must live as long as the store: the store listens there.
    ///
    /// # Errors
    ///
    /// [`Refused`](StoreErrorKind::Refused) if `config` is malformed, or the server refuses the user, the password or the database;
    /// [`Unreachable`](StoreErrorKind::Unreachable) if there is no such server; [`Transient`](StoreErrorKind::Transient) while it starts.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is left but a connection that is closed.
    pub async fn connect(config: &str) -> Result<Self, StoreError> {
        let refused = |error| StoreError::new(StoreErrorKind::Refused, error);
        let config = config::config(config).map_err(refused)?;
        let recycling = ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        };
        let pool = Pool::builder(Manager::from_config(config.clone(), NoTls, recycling))
            .max_size(CONNECTIONS)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(LIMIT))
            .create_timeout(Some(LIMIT))
            .build();
        let pool = pool.map_err(|error| StoreError::new(StoreErrorKind::Refused, error))?;
        let listener = Listener::new();
        let background = [
            tokio::spawn(listener.clone().run(config)),
            tokio::spawn(sweep(pool.clone())),
        ];
        let store = Self {
            pool,
            listener,
            _background: Arc::new(Background(background)),
        };
        // The first one to ask finds a connection.
        drop(store.connection().await?);
        Ok(store)
    }

    /// Makes the schema `tower_lock`, or replaces its functions by those of this version. Holds stay as they are. The user needs the
    /// right to create. Several processes may do it at once, such as each at its start.
    ///
    /// # Errors
    ///
    /// As those of [`LockStore`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the schema is there, or nothing of it is.
    pub async fn install(&self) -> Result<(), StoreError> {
        let connection = self.connection().await?;
        let installed = connection.batch_execute(include_str!("schema.sql")).await;
        installed.map_err(asked)
    }

    async fn connection(&self) -> Result<Object, StoreError> {
        self.pool.get().await.map_err(|error| match error {
            // The server has answered.
            PoolError::Backend(error) if error.code().is_some() => match asked(error) {
                // No question was asked yet.
                lost if lost.kind() == StoreErrorKind::Unanswered => {
                    StoreError::new(StoreErrorKind::Unreachable, lost)
                }
                refused => refused,
            },
            error => StoreError::new(StoreErrorKind::Unreachable, error),
        })
    }

    /// Asks one question. Its answer is one row.
    async fn ask(&self, question: &str, with: &[&(dyn ToSql + Sync)]) -> Result<Row, StoreError> {
        let connection = self.connection().await?;
        let answer = async {
            let question = connection.prepare_cached(question).await?;
            connection.query_one(&question, with).await
        };
        match timeout(LIMIT, answer).await {
            Ok(answer) => answer.map_err(asked),
            Err(elapsed) => {
                // The next user of this connection would wait behind the question.
                drop(Object::take(connection));
                Err(StoreError::new(StoreErrorKind::Unanswered, elapsed))
            }
        }
    }
}

impl LockStore for PostgresStore {
    fn capabilities(&self) -> Capabilities {
        use LockMode::{Fair, Read, Reentrant, Write};
        Capabilities::new([Reentrant, Fair, Read, Write])
            .fencing()
            .records()
            .database("postgresql")
            .inspect(self.clone())
    }

    fn partition(&self, key: &LockKey) -> Result<u16, Unsupported> {
        let why = match key.as_str() {
            key if key.len() > LONGEST_KEY => "PostgreSQL indexes keys of up to 1000 bytes",
            key if key.contains('\0') => "a text in PostgreSQL has no zero byte",
            _ => return Ok(0),
        };
        Err(Unsupported::new(Feature::Key, why))
    }

    async fn acquire(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
        let Names { keys, modes, ids } = Names::of([&attempt.hold]);
        let waits = attempt.patience.map(|_| micros(WAITER_LIVENESS));
        let (lease, fenced) = (micros(attempt.lease), fenced(attempt)?);
        let id = attempt.hold.id.to_string();
        let question = "SELECT * FROM tower_lock.acquire($1, $2, $3, $4, $5, $6, $7)";
        let with: [&(dyn ToSql + Sync); 7] =
            [&keys[0], &modes[0], &ids[0], &id, &lease, &waits, &fenced];
        let answer = self.ask(question, &with).await?;
        match answer.get("verdict") {
            "granted" => Ok(Outcome::Granted {
                token: answer.get::<_, Option<_>>("token").map(token),
            }),
            "refused" => Ok(Outcome::Refused {
                retry_after: duration(answer.get("wait")),
            }),
            other => Err(failure(other)),
        }
    }

    async fn acquire_several(
        &self,
        attempts: &[Attempt],
        want: Want,
    ) -> Result<SeveralOutcome, StoreError> {
        let every = want == Want::All;
        let Names { keys, modes, ids } = Names::of(attempts.iter().map(|attempt| &attempt.hold));
        let leases: Vec<_> = attempts
            .iter()
            .map(|attempt| micros(attempt.lease))
            .collect();
        let fenced: Vec<_> = attempts.iter().map(fenced).collect::<Result<_, _>>()?;
        let question = "SELECT * FROM tower_lock.acquire_several($1, $2, $3, $4, $5, $6)";
        let with: [&(dyn ToSql + Sync); 6] = [&every, &keys, &modes, &ids, &leases, &fenced];
        let answer = self.ask(question, &with).await?;
        let at = answer.get::<_, Option<i32>>("at").unwrap_or_default();
        let at = usize::try_from(at).expect("an index");
        match answer.get::<_, Option<_>>("verdict") {
            None | Some("granted") => {
                let first = if every { 0 } else { at };
                let tokens = answer.get::<_, Vec<Option<i64>>>("tokens").into_iter();
                let grant =
                    |(n, granted): (usize, Option<i64>)| Grant::new(first + n, granted.map(token));
                Ok(SeveralOutcome::Granted(
                    tokens.enumerate().map(grant).collect(),
                ))
            }
            Some("refused") => Ok(SeveralOutcome::Refused {
                index: every.then_some(at),
                retry_after: duration(answer.get("wait")),
            }),
            Some(other) => Err(failure(other)),
        }
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<HoldStatus>, StoreError> {
        let Names { keys, modes, ids } = Names::of(renewals.iter().map(|renewal| &renewal.hold));
        let leases: Vec<_> = renewals
            .iter()
            .map(|renewal| renewal.lease.map(micros))
            .collect();
        let question = "SELECT tower_lock.renew($1, $2, $3, $4)";
        let answer = self.ask(question, &[&keys, &modes, &ids, &leases]).await?;
        let held: Vec<bool> = answer.get(0);
        Ok(held.into_iter().map(status).collect())
    }

    async fn release(&self, hold: &Hold, record: Option<&Record>) -> Result<Released, StoreError> {
        if record.is_some() && hold.mode == LockMode::Read {
            let shared = "a read hold leaves no record: others may hold the key at the same time";
            return Err(StoreError::new(StoreErrorKind::Refused, shared));
        }
        let Names { keys, modes, ids } = Names::of([hold]);
        let value = record.map(|record| record.value.as_ref());
        let retention = record.map(|record| micros(record.retention));
        let question = "SELECT tower_lock.release($1, $2, $3, $4, $5)";
        let with: [&(dyn ToSql + Sync); 5] = [&keys[0], &modes[0], &ids[0], &value, &retention];
        Ok(status(self.ask(question, &with).await?.get(0)).into())
    }

    async fn withdraw(&self, attempt: &Attempt, unanswered: bool) -> Result<(), StoreError> {
        let Names { keys, modes, ids } = Names::of([&attempt.hold]);
        let memory = unanswered.then(|| micros(attempt.lease.max(LATENESS)));
        let id = attempt.hold.id.to_string();
        let question = "SELECT tower_lock.withdraw($1, $2, $3, $4, $5)";
        let with: [&(dyn ToSql + Sync); 5] = [&keys[0], &modes[0], &ids[0], &id, &memory];
        self.ask(question, &with).await.map(drop)
    }

    async fn subscribe(&self, attempt: &Attempt) -> Result<Wakeups, StoreError> {
        self.listener.subscribe(channel(attempt)).await
    }

    async fn record(&self, key: &LockKey) -> Result<Option<Bytes>, StoreError> {
        let question = "SELECT (SELECT value FROM tower_lock.record WHERE key = $1 AND until > tower_lock.clock())";
        let answer = self.ask(question, &[&key.as_str()]).await?;
        Ok(answer.get::<_, Option<Vec<u8>>>(0).map(Bytes::from))
    }

    async fn audit(&self) -> Result<Audit, StoreError> {
        let settings = ["fsync", "synchronous_commit", "synchronous_standby_names"];
        let question =
            "SELECT current_setting($1), current_setting($2), current_setting($3), version(),
            EXISTS (SELECT FROM pg_stat_replication)";
        let answer = self
            .ask(question, &[&settings[0], &settings[1], &settings[2]])
            .await?;
        let durable = answer.get::<_, &str>(0) == "on" && answer.get::<_, &str>(1) != "off";
        // A standby may take over, whether a commit waits for it or not.
        let is_followed = answer.get(4) || !answer.get::<_, &str>(2).is_empty();
        let mut audit = Audit::new(match (durable, is_followed) {
            (false, _) => Deployment::Volatile,
            (true, false) => Deployment::Durable,
            (true, true) => Deployment::Failover,
        });
        if !durable {
            let text =
                "fsync or synchronous_commit is off, so a crash frees what is held: set both to on";
            audit.warnings.push(Warning::new("not_persistent", text));
        }
        let names = settings.into_iter().chain(["version"]).enumerate();
        audit
            .facts
            .extend(names.map(|(n, name)| (name, answer.get(n))));
        Ok(audit)
    }
}

impl Inspect for PostgresStore {
    async fn inspect(&self, key: &LockKey) -> Result<Inspection, StoreError> {
        let question = "SELECT * FROM tower_lock.inspect($1, $2)";
        let answer = self.ask(question, &[&key.as_str(), &SHOWN]).await?;
        let holders: Vec<String> = answer.get("holders");
        let (kinds, remaining): (Vec<String>, Vec<i64>) =
            (answer.get("kinds"), answer.get("remaining"));
        let holders = holders.into_iter().zip(kinds).zip(remaining);
        let mut inspection = Inspection::default();
        inspection.truncated = answer.get("truncated");
        inspection.waiters = answer.get("waiters");
        let holder = |((id, kind), remaining): ((String, String), i64)| {
            let mode = match &*kind {
                "exclusive" => LockMode::Reentrant,
                "write" => LockMode::Write,
                _ => LockMode::Read,
            };
            Holder::new(id, mode, duration(remaining))
        };
        inspection.holders = holders.map(holder).collect();
        Ok(inspection)
    }

    async fn force_unlock(&self, key: &LockKey) -> Result<bool, StoreError> {
        let answer = self
            .ask("SELECT tower_lock.force($1)", &[&key.as_str()])
            .await?;
        Ok(answer.get(0))
    }
}

/// How many holders and waiters an inspection shows.
const SHOWN: i64 = 100;

fn status(held: bool) -> HoldStatus {
    match held {
        true => HoldStatus::Held,
        false => HoldStatus::Gone,
    }
}

/// Whether a token is asked for.
fn fenced(attempt: &Attempt) -> Result<bool, StoreError> {
    match attempt.fencing {
        Some(fencing) if fencing.reserve >= RESERVED => {
            let room = "no more than 2^20 fencing tokens can be reserved";
            Err(StoreError::new(StoreErrorKind::Refused, room))
        }
        fencing => Ok(fencing.is_some()),
    }
}

fn token(number: i64) -> FencingToken {
    FencingToken::new(number.cast_unsigned())
}

/// Removes what has had its time, once a minute.
async fn sweep(pool: Pool) {
    loop {
        sleep(Duration::from_secs(60)).await;
        for sweep in ["sweep_entries", "sweep_records"] {
            if let Err(error) = sweep_all(&pool, &format!("SELECT tower_lock.{sweep}()")).await {
                tracing::warn!(%error, "what has expired stays in the database for now");
            }
        }
    }
}

/// Each call is a transaction of its own, until one finds nothing more.
async fn sweep_all(pool: &Pool, sweep: &str) -> Result<(), PoolError> {
    loop {
        let removed = pool.get().await?.query_one(sweep, &[]).await?;
        if removed.get::<_, i64>(0) == 0 {
            return Ok(());
        }
    }
}
