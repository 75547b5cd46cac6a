//! Waits for replicas, for many callers at a time.
//!
//! `WAIT` covers everything that its connection has written before it, and blocks every later command. So one `WAIT` is
//! under way at a time on a connection, and callers that write meanwhile take part in the next.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, Role, Value, from_redis_value};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::address::Address;
use super::replicas::Replicas;
use super::timeouts::Timeouts;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::protocol::script::ms;
use crate::sync::Mutex;

/// The callers that wait for replicas on one connection, and the task that sends `WAIT` for them. It ends with the connection.
pub(crate) struct AckQueue {
    callers: UnboundedSender<Caller>,
    _task: AbortOnDropHandle<()>,
    /// How long a caller waits for an answer: the runtime of the task may be blocked.
    limit: Duration,
}

type Caller = oneshot::Sender<Result<(), StoreError>>;

impl AckQueue {
    /// Waits until enough replicas have everything that was written on the connection before.
    pub(crate) async fn join(&self) -> Result<(), StoreError> {
        let (caller, answered) = oneshot::channel();
        // Without the task, the caller is dropped, which is an answer as well.
        let _ = self.callers.send(caller);
        match timeout(self.limit, answered).await {
            Ok(answered) => answered.unwrap_or_else(|gone| Err(unacknowledged(gone))),
            Err(_) => Err(silent()),
        }
    }
}

/// How the connections of a node wait for replicas.
pub(crate) struct SharedWaits {
    wanted: Replicas,
    timeouts: Timeouts,
    servers: Mutex<KnownServers>,
}

/// Protected by one mutex. What one connection learns of a server holds for all.
#[derive(Default)]
struct KnownServers {
    /// That to which the latest connection leads.
    current: ServerName,
    /// How many replicas must acknowledge a change: as many as followed the server last, and at least one if any ever did.
    needed: HashMap<ServerName, usize>,
}

/// The address that sentinels name; `None` if none do.
type ServerName = Option<Address>;

impl SharedWaits {
    pub(crate) fn new(wanted: Replicas, timeouts: Timeouts) -> Arc<Self> {
        Arc::new(Self {
            wanted,
            timeouts,
            servers: Mutex::default(),
        })
    }

    /// How much longer an answer may take, because the `WAIT` of another caller comes first.
    pub(super) fn delay(&self) -> Duration {
        match self.wanted.are_wanted() {
            true => self.timeouts.replicas,
            false => Duration::ZERO,
        }
    }

    /// The first command on a new connection.
    pub(super) fn greeting(&self) -> Cmd {
        redis::cmd(match self.wanted {
            Replicas::All => "ROLE",
            Replicas::None | Replicas::AtLeast(_) => "PING",
        })
    }

    /// Begins with a new connection to `server`, and the answer to the greeting on it. `None` if a change counts without
    /// replicas.
    pub(crate) fn begin(
        self: &Arc<Self>,
        connection: &MultiplexedConnection,
        server: ServerName,
        greeting: &Value,
    ) -> Option<AckQueue> {
        if !self.wanted.are_wanted() {
            return None;
        }
        self.servers.lock().current = server.clone();
        // An error is ignored: each `WAIT` asks again.
        let _ = self.needed(&server, greeting);
        let (callers, joining) = unbounded_channel();
        let task = self.clone().serve(connection.clone(), server, joining);
        let task = AbortOnDropHandle::new(tokio::spawn(task));
        // The round under way, and that of the caller. A round begins its last `WAIT` within `within`.
        let limit = 2 * (self.timeouts.replicas + self.answered_within());
        Some(AckQueue {
            callers,
            _task: task,
            limit,
        })
    }

    async fn serve(
        self: Arc<Self>,
        mut connection: MultiplexedConnection,
        server: ServerName,
        mut joining: UnboundedReceiver<Caller>,
    ) {
        let mut round = Vec::new();
        while joining.recv_many(&mut round, usize::MAX).await > 0 {
            let answer = self.ask(&mut connection, &server).await;
            for caller in round.drain(..) {
                // The caller may have been dropped.
                let _ = caller.send(answer.clone());
            }
        }
    }

    async fn ask(
        &self,
        connection: &mut MultiplexedConnection,
        server: &ServerName,
    ) -> Result<(), StoreError> {
        let over = Instant::now() + self.timeouts.replicas;
        let mut expected = match self.wanted {
            Replicas::AtLeast(replicas) => replicas,
            Replicas::All | Replicas::None => {
                let servers = self.servers.lock();
                servers.needed.get(server).copied().unwrap_or_default()
            }
        };
        loop {
            let left = over.saturating_duration_since(Instant::now());
            let (acknowledged, role) = self.wait(connection, expected, left).await?;
            if self.servers.lock().current != *server {
                return Err(unacknowledged("another server is the master now"));
            }
            let needed = self.needed(server, &role)?;
            if acknowledged >= needed {
                return Ok(());
            }
            // There are more replicas than this `WAIT` asked for: the next one asks for all of them.
            if expected >= needed || Instant::now() >= over {
                return Err(unacknowledged(format!(
                    "{acknowledged} of {needed} replicas acknowledged it within {:?}",
                    self.timeouts.replicas
                )));
            }
            expected = needed;
        }
    }

    /// How many replicas must acknowledge a change. For `Replicas::All`, `role` is the server's answer to `ROLE`.
    fn needed(&self, server: &ServerName, role: &Value) -> Result<usize, StoreError> {
        if let Replicas::AtLeast(replicas) = self.wanted {
            return Ok(replicas);
        }
        match told(role.clone())? {
            Role::Primary { replicas, .. } => {
                let mut servers = self.servers.lock();
                let needed = servers.needed.entry(server.clone()).or_default();
                *needed = replicas.len().max((*needed).min(1));
                Ok(*needed)
            }
            _ => Err(unacknowledged("the server is not a master any more")),
        }
    }

    /// How long a `WAIT` may take.
    fn answered_within(&self) -> Duration {
        self.timeouts.response + self.timeouts.replicas
    }

    /// Sends `WAIT`. Returns how many replicas have acknowledged, and for `Replicas::All` the answer to `ROLE`.
    async fn wait(
        &self,
        connection: &mut MultiplexedConnection,
        replicas: usize,
        left: Duration,
    ) -> Result<(usize, Value), StoreError> {
        let mut questions = redis::pipe();
        questions.cmd("WAIT").arg(replicas).arg(ms(left));
        let all = self.wanted == Replicas::All;
        if all {
            questions.cmd("ROLE");
        }
        let answers = connection.send_packed_commands(&questions, 0, 1 + usize::from(all));
        let answers = timeout(self.answered_within(), answers).await;
        let mut answers = answers
            .map_err(|_| silent())?
            .map_err(unacknowledged)?
            .into_iter();
        let acknowledged: i64 = told(answers.next().unwrap_or(Value::Nil))?;
        let acknowledged = usize::try_from(acknowledged).unwrap_or_default();
        Ok((acknowledged, answers.next().unwrap_or(Value::Nil)))
    }
}

/// The server has not answered.
fn silent() -> StoreError {
    unacknowledged("the server did not answer in time")
}

fn unacknowledged(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StoreError {
    StoreError::new(StoreErrorKind::Unacknowledged, why)
}

/// The answer to a question, which may be an error.
fn told<T: FromRedisValue>(answer: Value) -> Result<T, StoreError> {
    match answer {
        Value::ServerError(error) => Err(unacknowledged(error)),
        answer => from_redis_value(answer).map_err(unacknowledged),
    }
}
