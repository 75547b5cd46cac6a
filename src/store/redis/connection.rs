//! A connection that many commands share.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, ServerErrorKind, Value};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::endpoint::OnPush;
use super::failure::{self, unreachable};
use super::live::Live;
use super::node_context::NodeContext;
use super::script::Call;
use crate::backoff::Backoff;
use crate::error::{StoreError, StoreErrorKind};
use crate::sync::{Mutex, MutexGuard};
use crate::telemetry;

mod greeting;
mod probing;
mod reconnecting;

use greeting::NewConnection;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    /// The commands of callers. Their runtime drives the connection.
    Commands,
    /// Renewals, and questions about the slots of a Cluster. The store's thread drives the connection, so that these continue while
    /// the callers' runtime is busy.
    Renewals,
}

/// How often a call is sent by digest.
const TRIES: usize = 3;

/// A connection that is replaced when it breaks.
///
/// The first command that finds it broken starts the one task that replaces it. Later commands wait for that task's first
/// attempt. When the first attempt has failed, commands fail at once, and the task continues.
///
/// A command without an answer after [`Timeouts::probe_after`](super::timeouts::Timeouts::probe_after) starts a probe of the connection, and of the others to the
/// same server. If a `PING` on it has no answer either, but another connection gets one, the connection is replaced, and the
/// commands on it fail as `Unanswered`.
pub(super) struct SharedConnection {
    context: Arc<NodeContext>,
    purpose: Purpose,
    /// Takes in messages, if it is the connection for wake-ups.
    on_push: Option<OnPush>,
    state: Mutex<ConnectionState>,
    /// Notified when the task has succeeded or failed, and when the connection is closed.
    settled: Notify,
}

/// Protected by one mutex, which is never held across an await. Under it, only the mutex of `waits` is taken.
///
/// Transitions: `Connecting` → `Up` or `Down`; `Down` → `Up`, or `Connecting` for another task; `Up` → `Connecting` when the connection ends or is given up;
/// `Up` → `Up` when a probe has found it dead and another one answers. `Closed` is final: afterwards no connection is
/// installed and no task starts. Between calls, `Connecting` and `Down` have a `reconnecting` task, or the next command
/// starts it.
struct ConnectionState {
    link: LinkState,
    /// Rises with each connection, so that a late error of one connection does not affect the next.
    generation: u64,
    since: Instant,
    reconnecting: Option<BoundedTask>,
    probing: Option<BoundedTask>,
    /// The task that gives the connection up when another server is the master.
    following: Option<AbortOnDropHandle<()>>,
}

/// A task that ends or tries again within a known time, unless its runtime is not driven, as between two calls of `block_on`. After
/// that time another one takes its place.
struct BoundedTask {
    task: AbortOnDropHandle<()>,
    until: Instant,
}

impl BoundedTask {
    /// How late a busy runtime may poll it.
    const LATE: Duration = Duration::from_secs(1);
}

enum LinkState {
    Up(Arc<Live>),
    /// The first attempt to connect has not finished.
    Connecting,
    Down(StoreError),
    /// The store is gone.
    Closed,
}

impl SharedConnection {
    /// Connects when it is first used. `on_push`: it is for wake-ups.
    pub(super) fn new(
        context: &Arc<NodeContext>,
        purpose: Purpose,
        on_push: Option<OnPush>,
    ) -> Arc<Self> {
        let connection = Arc::new(Self {
            context: context.clone(),
            purpose,
            on_push,
            state: Mutex::new(ConnectionState {
                link: LinkState::Connecting,
                generation: 0,
                since: Instant::now(),
                reconnecting: None,
                probing: None,
                following: None,
            }),
            settled: Notify::new(),
        });
        let probed = Arc::downgrade(&connection);
        context.on_silence(move || {
            if let Some(connection) = probed.upgrade() {
                connection.probe();
            }
        });
        connection
    }

    /// Connects, and checks that the server answers and that the user has the rights that locks need.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<(), StoreError> {
        let opened = self.open(false).await?;
        self.install(opened);
        Ok(())
    }

    /// Calls a script, and returns the connection on which it was answered.
    ///
    /// The script is sent a second time only if the server did not know it.
    pub(super) async fn call(
        self: &Arc<Self>,
        call: &Call,
    ) -> Result<(Value, Arc<Live>), StoreError> {
        let (answer, sent) = self.answer(call, false).await?;
        match answer {
            Value::ServerError(error) => {
                if failure::needs_another_connection(&error) {
                    self.became_useless(sent.generation);
                }
                Err(failure::refusal(error))
            }
            answer => Ok((answer, sent)),
        }
    }

    /// The server's answer to a call; it may be an error. `asking` makes the server answer for a slot that is being moved to
    /// it.
    pub(super) async fn answer(
        self: &Arc<Self>,
        call: &Call,
        asking: bool,
    ) -> Result<(Value, Arc<Live>), StoreError> {
        for _ in 0..TRIES {
            let began = Instant::now();
            let (answer, sent) = self.send(&call.command, asking).await?;
            if !is_unknown_script(&answer) {
                return Ok((answer, sent));
            }
            // After a restart or a failover, all calls under way find out at once. The text of a script has ten times the size of
            // a call, so the first of a connection sends it. The others follow it on the connection.
            if sent.must_load(call, began) {
                break;
            }
        }
        self.send(&call.in_full(), asking).await
    }

    /// The server's answer to a command; it may be an error.
    pub(super) async fn query(self: &Arc<Self>, command: &Cmd) -> Result<Value, StoreError> {
        Ok(self.send(command, false).await?.0)
    }

    /// The same, on the connection with this `generation`. Nothing is sent if another one has replaced it.
    pub(super) async fn query_on(
        self: &Arc<Self>,
        generation: u64,
        command: &Cmd,
    ) -> Result<Value, StoreError> {
        match self.look() {
            Some(Ok(live)) if live.generation == generation => {
                Ok(self.send_on(live, command, false).await?.0)
            }
            _ => Err(unreachable("the connection was replaced")),
        }
    }

    async fn send(
        self: &Arc<Self>,
        command: &Cmd,
        asking: bool,
    ) -> Result<(Value, Arc<Live>), StoreError> {
        let live = self.live().await?;
        self.send_on(live, command, asking).await
    }

    async fn send_on(
        self: &Arc<Self>,
        live: Arc<Live>,
        command: &Cmd,
        asking: bool,
    ) -> Result<(Value, Arc<Live>), StoreError> {
        let mut handle = live.raw.handle.clone();
        let began = Instant::now();
        let answered = {
            let mut answer = pin!(put(&mut handle, command, asking));
            let soon = self.context.timeouts().probe_after() + self.context.waits.delay();
            match timeout_at(began + soon, &mut answer).await {
                Ok(answered) => Some(answered),
                Err(_) => Box::pin(self.patiently(&live, answer)).await,
            }
        };
        let carries = self.carries();
        let unanswered = match answered {
            Some(Ok(answer)) => {
                telemetry::store::answered(carries, began);
                return Ok((answer, live));
            }
            // The command may have been sent: only an error from before the first poll proves that it was not.
            Some(Err(error)) => {
                self.replace(live.generation, "it broke");
                StoreError::new(StoreErrorKind::Unanswered, error)
            }
            None => StoreError::new(
                StoreErrorKind::Unanswered,
                "the server did not answer in time",
            ),
        };
        telemetry::store::unanswered(carries);
        Err(unanswered)
    }

    /// Waits for the answer to a late command; `None` if the connection is given up.
    async fn patiently(
        &self,
        live: &Live,
        answer: Pin<&mut impl Future<Output = RedisResult<Value>>>,
    ) -> Option<RedisResult<Value>> {
        self.context.probe_all();
        let timeouts = self.context.timeouts();
        let rest = timeouts.response.saturating_sub(timeouts.probe_after());
        tokio::select! {
            biased;
            answered = answer => Some(answered),
            () = live.given_up.cancelled() => None,
            () = tokio::time::sleep(rest) => None,
        }
    }

    /// The connection. Returns at once if it is up or known to be down.
    pub(super) async fn live(self: &Arc<Self>) -> Result<Arc<Live>, StoreError> {
        match self.look() {
            Some(known) => known,
            None => Box::pin(self.reconnected()).await,
        }
    }

    /// Waits until the task that replaces the connection has succeeded or failed, and returns the connection.
    async fn reconnected(self: &Arc<Self>) -> Result<Arc<Live>, StoreError> {
        let settling = async {
            loop {
                let mut settled = pin!(self.settled.notified());
                // Registered before the state is read, so that no notification is missed between the two.
                settled.as_mut().enable();
                if let Some(known) = self.look() {
                    return known;
                }
                settled.await;
            }
        };
        // The task has a time limit; this limit is for a task that ended with its runtime.
        timeout(self.context.timeouts().connect * 2, settling)
            .await
            .unwrap_or_else(|_| Err(unreachable("the connection was not restored in time")))
    }

    /// The connection, or why there is none; `None` while the first attempt to connect has not finished.
    pub(super) fn look(self: &Arc<Self>) -> Option<Result<Arc<Live>, StoreError>> {
        let mut state = self.state();
        let known = match &state.link {
            LinkState::Up(live) if !live.has_ended() => return Some(Ok(live.clone())),
            LinkState::Closed => return Some(Err(unreachable("the store is gone"))),
            // The next caller on another runtime starts the replacement.
            _ if self.runtime().is_none() => {
                return Some(Err(unreachable("the connection broke")));
            }
            LinkState::Up(_) => {
                self.begin_replacing(&mut state, "it broke");
                return None;
            }
            LinkState::Connecting => None,
            LinkState::Down(error) => Some(Err(error.clone())),
        };
        self.ensure_reconnecting(&mut state);
        known
    }

    /// The server is not a master any more, or does not know the user any more: a new connection may lead to the new master, and
    /// has new credentials.
    fn became_useless(self: &Arc<Self>, generation: u64) {
        // There may be no new master yet, so not every such answer opens a new connection.
        let since = self.state().since;
        if since.elapsed() > Backoff::LONGEST {
            self.replace(generation, "its server refuses commands on it");
        }
    }

    /// Starts the replacement of the connection. Commands that were sent on the old one still get their answers, as long as
    /// it works.
    pub(super) fn replace(self: &Arc<Self>, generation: u64, reason: &'static str) {
        let mut state = self.state();
        if state.generation == generation && matches!(state.link, LinkState::Up(_)) {
            self.begin_replacing(&mut state, reason);
        }
    }

    /// The same for the connection that is up, whichever it is. A task that replaces one already may be on a runtime that is not
    /// driven, so another one takes its place.
    pub(super) fn replace_any(self: &Arc<Self>, reason: &'static str) {
        let mut state = self.state();
        if !matches!(state.link, LinkState::Closed) {
            state.reconnecting = None;
            self.begin_replacing(&mut state, reason);
        }
    }

    fn begin_replacing(self: &Arc<Self>, state: &mut ConnectionState, reason: &'static str) {
        tracing::warn!(reason, "a connection to Redis is replaced");
        if let LinkState::Up(live) = &state.link {
            // A command without an answer, or a probe, may keep it.
            live.raw.ended.cancel();
        }
        state.link = LinkState::Connecting;
        self.ensure_reconnecting(state);
    }

    /// Whether commands can be sent at once.
    pub(super) fn is_up(&self) -> bool {
        matches!(&self.state().link, LinkState::Up(live) if !live.has_ended())
    }

    /// The name in metrics of what it carries.
    fn carries(&self) -> &'static str {
        match self.purpose {
            _ if self.on_push.is_some() => telemetry::store::WAKE_UPS,
            Purpose::Commands => telemetry::store::COMMANDS,
            Purpose::Renewals => telemetry::store::RENEWALS,
        }
    }

    /// Ends the connection and its tasks.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.link = LinkState::Closed;
        state.reconnecting = None;
        state.probing = None;
        state.following = None;
        drop(state);
        self.settled.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock()
    }
}

async fn put(
    handle: &mut MultiplexedConnection,
    command: &Cmd,
    asking: bool,
) -> RedisResult<Value> {
    if !asking {
        return handle.send_packed_command(command).await;
    }
    // Boxed, so that the future of one command is small.
    let mut both = Box::new(Pipeline::with_capacity(2));
    both.cmd("ASKING").add_command(command.clone());
    let answers = Box::pin(handle.send_packed_commands(&both, 1, 1)).await?;
    Ok(answers.into_iter().next().unwrap_or(Value::Nil))
}

fn is_running(task: &Option<BoundedTask>) -> bool {
    task.as_ref()
        .is_some_and(|running| !running.task.is_finished() && Instant::now() < running.until)
}

fn is_unknown_script(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript))
}

#[cfg(test)]
#[path = "connection/tests.rs"]
mod tests;
