//! One connection that many commands share.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use deadpool::managed::Manager;
use deadpool_redis::{Connection, Pool, PoolError};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ServerErrorKind, Value};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::failure;
use super::options::Timeouts;
use super::script::Call;
use crate::error::{StoreError, StoreErrorKind};

/// The pause after the first failure to reconnect; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A connection out of the pool, kept, and replaced when it breaks.
///
/// Whoever finds it broken starts the one task that replaces it. Commands that come meanwhile wait for that task's first
/// try; when that has failed, they fail at once, while the task goes on trying.
pub(super) struct Lane {
    pool: Pool,
    place: Place,
    timeouts: Timeouts,
    state: Mutex<State>,
    /// The task has succeeded or failed.
    settled: Notify,
}

/// Where a lane's connection is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    InPool,
    /// Made like those in the pool, but not one of them: its task runs on the runtime that asked for it, never on one that
    /// used the connection before.
    Apart,
}

struct State {
    link: Link,
    /// Counts connections, so that a late complaint about one is not held against the next.
    generation: u64,
    /// Holds the connection's place in the pool.
    kept: Option<Connection>,
    mending: Option<JoinHandle<()>>,
    checking: Option<JoinHandle<()>>,
}

enum Link {
    Up(MultiplexedConnection),
    /// The first try to connect is to come, or under way.
    Mending,
    Down(StoreError),
}

impl Lane {
    /// A lane that connects when it is first used.
    pub(super) fn new(pool: Pool, place: Place, timeouts: Timeouts) -> Arc<Self> {
        Arc::new(Self {
            pool,
            place,
            timeouts,
            state: Mutex::new(State {
                link: Link::Mending,
                generation: 0,
                kept: None,
                mending: None,
                checking: None,
            }),
            settled: Notify::new(),
        })
    }

    /// Connects, and makes sure that the server answers.
    pub(super) async fn connect(&self) -> Result<(), StoreError> {
        let (kept, handle, answer) = self.open().await?;
        if let Value::ServerError(error) = answer {
            return Err(failure::refusal(error));
        }
        self.up(kept, handle);
        Ok(())
    }

    /// Calls a script.
    ///
    /// It is sent a second time only if the server did not know it, or the connection was dead before it was sent.
    pub(super) async fn call(self: &Arc<Self>, call: &Call) -> Result<Value, StoreError> {
        let mut answer = self.send(&call.command).await?;
        if is_unknown_script(&answer) {
            answer = self.send(&call.in_full()).await?;
        }
        match answer {
            Value::ServerError(error) => Err(failure::refusal(error)),
            answer => Ok(answer),
        }
    }

    async fn send(self: &Arc<Self>, command: &Cmd) -> Result<Value, StoreError> {
        let mut again = true;
        loop {
            let (mut handle, generation) = self.handle().await?;
            let mut sending = pin!(handle.send_packed_command(command));
            // The connection's task takes commands from a queue. An error before the first wait means that it was gone
            // and did not take this one.
            let at_once = poll_fn(|cx| Poll::Ready(sending.as_mut().poll(cx))).await;
            let (answer, taken) = match at_once {
                Poll::Ready(answer) => (answer, false),
                Poll::Pending => (sending.await, true),
            };
            let error = match answer {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if error.is_timeout() {
                self.suspect(generation);
                return Err(StoreError::new(StoreErrorKind::Unanswered, error));
            }
            self.broken(generation);
            if taken {
                return Err(StoreError::new(StoreErrorKind::Unanswered, error));
            }
            if !again {
                return Err(StoreError::new(StoreErrorKind::Unreachable, error));
            }
            again = false;
        }
    }

    /// The connection, at once if it is up or known to be down.
    async fn handle(self: &Arc<Self>) -> Result<(MultiplexedConnection, u64), StoreError> {
        if let Some(known) = self.look() {
            return known;
        }
        let settling = async {
            loop {
                let mut settled = pin!(self.settled.notified());
                // Registered before the look, so that nothing falls between the two.
                settled.as_mut().enable();
                if let Some(known) = self.look() {
                    return known;
                }
                settled.await;
            }
        };
        // The task is bounded; this is for one that died with its runtime.
        timeout(self.timeouts.connect * 2, settling)
            .await
            .unwrap_or_else(|_| Err(unreachable("the connection was not restored in time")))
    }

    fn look(self: &Arc<Self>) -> Option<Result<(MultiplexedConnection, u64), StoreError>> {
        let mut state = self.state();
        let known = match &state.link {
            Link::Up(handle) => return Some(Ok((handle.clone(), state.generation))),
            Link::Mending => None,
            Link::Down(error) => Some(Err(error.clone())),
        };
        self.ensure_mending(&mut state);
        known
    }

    /// The connection is dead: takes it out of the pool and has it replaced.
    fn broken(self: &Arc<Self>, generation: u64) {
        let mut state = self.state();
        if state.generation != generation || !matches!(state.link, Link::Up(_)) {
            return;
        }
        tracing::warn!("a connection to Redis broke");
        state.link = Link::Mending;
        if let Some(kept) = state.kept.take() {
            drop(Connection::take(kept));
        }
        self.ensure_mending(&mut state);
    }

    /// A command went unanswered: finds out whether the connection is dead.
    fn suspect(self: &Arc<Self>, generation: u64) {
        let mut state = self.state();
        let Link::Up(handle) = &state.link else {
            return;
        };
        if state.generation != generation || is_running(&state.checking) {
            return;
        }
        let (lane, mut handle) = (self.clone(), handle.clone());
        state.checking = Some(tokio::spawn(async move {
            if handle
                .send_packed_command(&redis::cmd("PING"))
                .await
                .is_err()
            {
                drop(handle);
                lane.broken(generation);
            }
        }));
    }

    fn ensure_mending(self: &Arc<Self>, state: &mut State) {
        if !is_running(&state.mending) {
            state.mending = Some(tokio::spawn(self.clone().mend()));
        }
    }

    async fn mend(self: Arc<Self>) {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.open().await {
                // A server that answers with an error, such as that it is loading, says so to each command as well.
                Ok((kept, handle, _)) => {
                    self.up(kept, handle);
                    return;
                }
                Err(error) => {
                    tracing::debug!(%error, "no connection to Redis");
                    self.state().link = Link::Down(error);
                    self.settled.notify_waiters();
                }
            }
            tokio::time::sleep(pause.mul_f64(0.75 + fastrand::f64() / 4.0)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn up(&self, kept: Option<Connection>, handle: MultiplexedConnection) {
        let mut state = self.state();
        state.generation += 1;
        state.kept = kept;
        state.link = Link::Up(handle);
        state.mending = None;
        self.settled.notify_waiters();
    }

    /// Takes a connection from the pool, or makes one, and asks it something.
    async fn open(&self) -> Result<(Option<Connection>, MultiplexedConnection, Value), StoreError> {
        let opening = async {
            let (kept, mut handle) = match self.place {
                Place::InPool => {
                    let kept = self.pool.get().await.map_err(|error| match error {
                        PoolError::Backend(error) => failure::no_connection(error),
                        error => StoreError::new(StoreErrorKind::Unreachable, error),
                    })?;
                    let handle = (*kept).clone();
                    (Some(kept), handle)
                }
                Place::Apart => {
                    let made = self.pool.manager().create().await;
                    (None, made.map_err(failure::no_connection)?)
                }
            };
            handle.set_response_timeout(self.timeouts.response);
            let answer = handle.send_packed_command(&redis::cmd("PING")).await;
            Ok((kept, handle, answer.map_err(failure::no_connection)?))
        };
        timeout(self.timeouts.connect, opening)
            .await
            .unwrap_or_else(|_| Err(unreachable("connecting took too long")))
    }

    /// Whether commands can be sent at once, as far as is known.
    pub(super) fn is_up(&self) -> bool {
        matches!(self.state().link, Link::Up(_))
    }

    /// Ends the lane's tasks.
    pub(super) fn close(&self) {
        let mut state = self.state();
        for task in [state.mending.take(), state.checking.take()]
            .into_iter()
            .flatten()
        {
            task.abort();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_running(task: &Option<JoinHandle<()>>) -> bool {
    task.as_ref().is_some_and(|task| !task.is_finished())
}

fn is_unknown_script(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript))
}

fn unreachable(text: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Unreachable, text)
}
