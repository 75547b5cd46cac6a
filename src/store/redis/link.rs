//! A connection that heals. It knows sockets and servers, and no locks.
//!
//! The `redis` crate has a `ConnectionManager`, which this store cannot use (redis-rs 1.8, `aio/connection_manager.rs`):
//!
//! * `reconnect_if_io_error!` reconnects after I/O errors only. One refused `AUTH` or `SELECT` while it reconnects, for which a server
//!   at its connection limit is enough, stays in its shared future and is returned forever.
//! * It has no hook before the first command. Role and rights are checked once for each connection here: a user who may write but not
//!   expire would take locks that never end.
//! * It knows nothing of connections that are silent, and nothing of sentinels.

use std::pin::{Pin, pin};
use std::sync::Arc;

use redis::{RedisResult, ServerErrorKind, Value};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::protocol::channels::Channels;
use super::protocol::failure::unreachable;
use crate::backoff::Backoff;
use crate::error::StoreError;
use crate::sync::Mutex;
use crate::telemetry;
use context::LinkContext;
use endpoint::OnPush;
use sentinel::FollowedMaster;
use wire::Wire;

pub(super) mod address;
pub(super) mod connector;
pub(super) mod context;
pub(super) mod endpoint;
mod opening;
mod sending;
pub(super) mod sentinel;
pub(super) mod thread;
pub(super) mod timeouts;
mod waits;
pub(super) mod wire;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    /// The commands of callers. The runtime of the first caller drives the connection.
    Commands,
    /// Renewals, and questions about the slots of a Cluster. The store's thread drives the connection, so that these continue while
    /// the callers' runtime is busy.
    Renewals,
}

/// How often a call is sent by digest.
const TRIES: usize = 3;

/// A connection that is replaced when it breaks: one task opens it, serves until it ends, and opens the next.
///
/// A command without an answer after [`Timeouts::probe_after`](timeouts::Timeouts::probe_after) makes every link to the server
/// send a `PING`. If it has no answer either, but another connection gets one, the connection is replaced, and the commands on it fail
/// as `Unanswered`.
pub(super) struct Link {
    context: Arc<LinkContext>,
    purpose: Purpose,
    /// Takes in messages, if it is the connection for wake-ups.
    on_push: Option<OnPush>,
    /// Notified by a caller that finds no connection.
    wanted: Notify,
    /// Only the task changes it, until `close`, which is final.
    state: watch::Sender<State>,
    /// Protected by the mutex, which is held neither across an await nor while other code runs. `None` before the first caller.
    task: Mutex<Option<AbortOnDropHandle<()>>>,
}

enum State {
    /// The first attempt to connect has not finished: callers wait for it.
    Opening,
    Up(Arc<Wire>),
    /// Callers fail at once, while the task continues.
    Down(StoreError),
    /// The store is gone.
    Closed,
}

impl State {
    /// The connection, or why there is none; `None` if it is worth waiting.
    fn known(&self) -> Option<Result<Arc<Wire>, StoreError>> {
        match self {
            Self::Up(wire) if !wire.has_ended() => Some(Ok(wire.clone())),
            Self::Up(_) | Self::Opening => None,
            Self::Down(error) => Some(Err(error.clone())),
            Self::Closed => Some(Err(unreachable("the store is gone"))),
        }
    }
}

impl Link {
    /// Connects when it is first used. `on_push`: it is for wake-ups.
    pub(super) fn new(
        context: &Arc<LinkContext>,
        purpose: Purpose,
        on_push: Option<OnPush>,
    ) -> Arc<Self> {
        Arc::new(Self {
            context: context.clone(),
            purpose,
            on_push,
            wanted: Notify::new(),
            state: watch::Sender::new(State::Opening),
            task: Mutex::default(),
        })
    }

    /// Connects, and checks that the server answers and that the user has the rights that locks need.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<(), StoreError> {
        let opened = self.open(false).await?;
        self.start(Some(opened));
        Ok(())
    }

    /// The connection. Returns at once if it is up or known to be down.
    pub(super) async fn wire(self: &Arc<Self>) -> Result<Arc<Wire>, StoreError> {
        match self.known() {
            Some(known) => known,
            None => Box::pin(self.opened()).await,
        }
    }

    /// The kind of channels of the server, which each connection to it tells.
    pub(super) async fn channels(self: &Arc<Self>) -> Result<Channels, StoreError> {
        if let Some(kind) = self.context.settings.channels {
            return Ok(kind);
        }
        // A server may have been upgraded between two connections.
        self.wire().await?;
        Ok(self.context.channels().unwrap_or(Channels::Plain))
    }

    /// The connection, or why there is none; `None` while the first attempt to connect has not finished.
    pub(super) fn known(self: &Arc<Self>) -> Option<Result<Arc<Wire>, StoreError>> {
        let known = self.state.borrow().known();
        if !matches!(known, Some(Ok(_))) {
            self.start(None);
            self.wanted.notify_one();
        }
        known
    }

    /// Waits until the task has connected, or has failed to.
    async fn opened(&self) -> Result<Arc<Wire>, StoreError> {
        let mut state = self.state.subscribe();
        let settled = state.wait_for(|state| state.known().is_some());
        // The task has a time limit: `until_wanted` may pause before it connects. This limit is for a task that ends with its runtime.
        let limit = Backoff::LONGEST + self.context.timeouts().connect * 2;
        let settled = timeout(limit, settled).await;
        let known = settled.ok().and_then(|settled| settled.ok()?.known());
        known.unwrap_or_else(|| Err(unreachable("the connection was not restored in time")))
    }

    /// Starts the task, unless it runs. A task that has ended with its runtime is followed by one on the runtime of the next
    /// caller.
    fn start(self: &Arc<Self>, opened: Option<Wire>) {
        let mut task = self.task.lock();
        let runs = task.as_ref().is_some_and(|task| !task.is_finished());
        if (runs && opened.is_none()) || matches!(*self.state.borrow(), State::Closed) {
            return;
        }
        let background = &self.context.settings.background;
        let runtime = match (self.purpose, &self.on_push) {
            (Purpose::Commands, None) => None,
            _ => background.runtime(),
        };
        let Some(runtime) = runtime.or_else(|| Handle::try_current().ok()) else {
            return;
        };
        let before = self.set(State::Opening);
        let running = runtime.spawn(self.clone().run(opened));
        let former = task.replace(AbortOnDropHandle::new(running));
        drop(task);
        drop((former, before));
    }

    async fn run(self: Arc<Self>, mut opened: Option<Wire>) {
        let (mut failing, mut short_lived) = (Backoff::STORE, Backoff::STORE);
        loop {
            let opening = match opened.take() {
                Some(opened) => Ok(opened),
                None => self.open(true).await,
            };
            match opening {
                Ok(wire) => {
                    failing.reset();
                    let wire = Arc::new(wire);
                    drop(self.set(State::Up(wire.clone())));
                    let mut moved = pin!(replaced(wire.master.clone()));
                    match self.serve(&wire, moved.as_mut()).await {
                        Some(Ok(another)) => {
                            opened = Some(another);
                            wire.give_up();
                        }
                        Some(Err(error)) => {
                            drop(self.set(State::Down(error)));
                            wire.give_up();
                        }
                        None => {
                            drop(self.set(State::Opening));
                            self.until_wanted(wire, moved, &mut short_lived).await;
                        }
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "no connection to Redis");
                    telemetry::store::failed(self.carries());
                    drop(self.set(State::Down(error)));
                    failing.pause().await;
                }
            }
        }
    }

    /// Waits until the next connection is to be opened. `ended` is dropped first, because it is counted as up until then.
    async fn until_wanted(
        &self,
        ended: Arc<Wire>,
        moved: Pin<&mut impl Future<Output = ()>>,
        short_lived: &mut Backoff,
    ) {
        let (was_ended, since) = (ended.was_ended(), ended.since);
        drop(ended);
        // A server may end connections that are idle: it gets another one when a caller wants it. A new master gets one at once.
        if !was_ended {
            tokio::select! {
                () = self.wanted.notified() => {}
                () = moved => {}
            }
        }
        // A server may accept connections and end them.
        match since.elapsed() < Backoff::LONGEST {
            true => short_lived.pause().await,
            false => short_lived.reset(),
        }
    }

    /// Waits until the connection ends, or another server is the master. If the connection is silent, returns the one that answers
    /// instead; its error means that the server answers on none.
    async fn serve(
        &self,
        wire: &Wire,
        mut moved: Pin<&mut impl Future<Output = ()>>,
    ) -> Option<Result<Wire, StoreError>> {
        let mut late = self.context.late.subscribe();
        let ended = loop {
            tokio::select! {
                () = wire.ended() => break None,
                () = &mut moved => {
                    wire.end("another server is the master");
                    break None;
                }
                _ = late.changed() => {
                    tokio::select! {
                        biased;
                        () = wire.ended() => break None,
                        answered = ping(wire) => if answered.is_err() {
                            wire.end("it broke");
                        },
                        another = self.another() => {
                            wire.end("its server does not answer on it");
                            break Some(another);
                        }
                    }
                    late.borrow_and_update();
                }
            }
        };
        let error = ended.as_ref().and_then(|another| another.as_ref().err());
        let error = error.map(tracing::field::display);
        tracing::warn!(
            error,
            reason = wire.why(),
            "a connection to Redis is replaced"
        );
        ended
    }

    /// Sets the state, unless the link is closed. Returns the former one, which the caller drops: it may be the last to know a
    /// connection.
    fn set(&self, state: State) -> State {
        let mut next = state;
        self.state.send_if_modified(|state| {
            let is_open = !matches!(state, State::Closed);
            if is_open {
                std::mem::swap(state, &mut next);
            }
            is_open
        });
        next
    }

    /// Whether commands can be sent at once.
    pub(super) fn is_up(&self) -> bool {
        matches!(self.state.borrow().known(), Some(Ok(_)))
    }

    /// The name in metrics of what it carries.
    fn carries(&self) -> &'static str {
        match self.purpose {
            _ if self.on_push.is_some() => telemetry::store::WAKE_UPS,
            Purpose::Commands => telemetry::store::COMMANDS,
            Purpose::Renewals => telemetry::store::RENEWALS,
        }
    }

    /// Ends the connection and its task.
    pub(super) fn close(&self) {
        let state = self.state.send_replace(State::Closed);
        let task = self.task.lock().take();
        drop((task, state));
    }
}

/// Returns when the sentinels name another server than the one that a connection leads to.
async fn replaced(master: Option<FollowedMaster>) {
    if let Some(mut master) = master
        && master.replaced().await
    {
        return;
    }
    std::future::pending().await
}

async fn ping(wire: &Wire) -> RedisResult<Value> {
    wire.handle().send_packed_command(&redis::cmd("PING")).await
}

fn is_unknown_script(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript))
}

#[cfg(test)]
#[path = "link/tests.rs"]
pub(super) mod tests;
