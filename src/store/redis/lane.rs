//! One connection that many commands share.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use deadpool_redis::Connection;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, ServerErrorKind, Value};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::failure;
use super::replicas::Acknowledgement;
use super::rights;
use super::script::Call;
use super::sentinel::{Departure, Master};
use super::source::{Source, Taken};
use super::timeouts::Timeouts;
use crate::error::{StoreError, StoreErrorKind};

mod rounds;

use rounds::Rounds;
pub(super) use rounds::Sent;

/// The pause after the first failure to reconnect; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A connection out of the pool, kept, and replaced when it breaks.
///
/// Whoever finds it broken starts the one task that replaces it. Commands that come meanwhile wait for that task's first
/// try; when that has failed, they fail at once, while the task goes on trying.
pub(super) struct Lane {
    source: Source,
    timeouts: Timeouts,
    rounds: Arc<Rounds>,
    state: Mutex<State>,
    /// The task has succeeded or failed.
    settled: Notify,
}

struct State {
    link: Link,
    /// Counts connections, so that a late complaint about one is not held against the next.
    generation: u64,
    /// Holds the connection's place in the pool.
    kept: Option<Connection>,
    since: Instant,
    /// Which server it leads to, if there is a choice, and the number of such changes.
    master: Option<Master>,
    server: u64,
    mending: Option<JoinHandle<()>>,
    checking: Option<JoinHandle<()>>,
    /// Leaves the connection when its server is not the one any more.
    departing: Option<JoinHandle<()>>,
}

enum Link {
    Up(MultiplexedConnection),
    /// The first try to connect is to come, or under way.
    Mending,
    Down(StoreError),
}

/// A connection that has answered.
struct Opened {
    kept: Option<Connection>,
    handle: MultiplexedConnection,
    answer: Value,
    departure: Departure,
}

impl Lane {
    /// A lane that connects when it is first used.
    pub(super) fn new(source: Source, timeouts: Timeouts, wanted: Acknowledgement) -> Arc<Self> {
        Arc::new(Self {
            source,
            timeouts,
            rounds: Rounds::new(wanted),
            state: Mutex::new(State {
                link: Link::Mending,
                generation: 0,
                kept: None,
                since: Instant::now(),
                master: None,
                server: 0,
                mending: None,
                checking: None,
                departing: None,
            }),
            settled: Notify::new(),
        })
    }

    /// Connects, and makes sure that the server answers, and lets the user do what locks need.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<(), StoreError> {
        let opened = self.open().await?;
        self.up(opened);
        Ok(())
    }

    /// Calls a script, and says on which connection.
    ///
    /// It is sent a second time only if the server did not know it, or the connection was dead before it was sent.
    pub(super) async fn call(self: &Arc<Self>, call: &Call) -> Result<(Value, Sent), StoreError> {
        let (answer, sent) = self.answer(call, false).await?;
        match answer {
            Value::ServerError(error) => {
                if failure::is_demotion(&error) {
                    self.demoted(sent.generation);
                }
                Err(failure::refusal(error))
            }
            answer => Ok((answer, sent)),
        }
    }

    /// What the server answers to a call, be it an error. `asking` makes it answer for a slot that it is about to be given.
    pub(super) async fn answer(
        self: &Arc<Self>,
        call: &Call,
        asking: bool,
    ) -> Result<(Value, Sent), StoreError> {
        let (answer, sent) = self.send(&Question::new(&call.command, asking)).await?;
        match is_unknown_script(&answer) {
            true => self.send(&Question::new(&call.in_full(), asking)).await,
            false => Ok((answer, sent)),
        }
    }

    /// What the server answers to a command that may be sent twice, be it an error.
    pub(super) async fn query(self: &Arc<Self>, command: &Cmd) -> Result<Value, StoreError> {
        Ok(self.send(&Question::Plain(command)).await?.0)
    }

    /// Waits until as many replicas as the store asks for have whatever was `sent`.
    pub(super) async fn acknowledged(&self, sent: Sent) -> Result<(), StoreError> {
        self.rounds.join(sent).await
    }

    async fn send(self: &Arc<Self>, question: &Question<'_>) -> Result<(Value, Sent), StoreError> {
        let mut again = true;
        loop {
            let mut sent = self.handle().await?;
            let generation = sent.generation;
            let (answer, taken) = {
                let mut sending = pin!(question.put(&mut sent.handle));
                // The connection's task takes commands from a queue. An error before the first wait means that it was
                // gone and did not take this one.
                let at_once = poll_fn(|cx| Poll::Ready(sending.as_mut().poll(cx))).await;
                match at_once {
                    Poll::Ready(answer) => (answer, false),
                    Poll::Pending => (sending.await, true),
                }
            };
            let error = match answer {
                Ok(answer) => return Ok((answer, sent)),
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
    async fn handle(self: &Arc<Self>) -> Result<Sent, StoreError> {
        match self.look() {
            Some(known) => known,
            None => Box::pin(self.mended()).await,
        }
    }

    /// The connection, once the task that replaces it has succeeded or failed.
    async fn mended(self: &Arc<Self>) -> Result<Sent, StoreError> {
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

    fn look(self: &Arc<Self>) -> Option<Result<Sent, StoreError>> {
        let mut state = self.state();
        let known = match &state.link {
            Link::Up(handle) => {
                return Some(Ok(Sent {
                    handle: handle.clone(),
                    generation: state.generation,
                    server: state.server,
                }));
            }
            Link::Mending => None,
            Link::Down(error) => Some(Err(error.clone())),
        };
        self.ensure_mending(&mut state);
        known
    }

    /// The connection is dead: takes it out of the pool and has it replaced.
    fn broken(self: &Arc<Self>, generation: u64) {
        self.leave(generation, "it broke");
    }

    /// The server is not a master any more: a new connection may lead to the one that is.
    fn demoted(self: &Arc<Self>, generation: u64) {
        // There may be no other master yet, and a new connection each time would help nobody.
        if self.state().since.elapsed() > LONGEST_PAUSE {
            self.leave(generation, "its server is read-only");
        }
    }

    /// Has the connection replaced. What was sent on it is still answered on it, if it can be.
    fn leave(self: &Arc<Self>, generation: u64, reason: &'static str) {
        let mut state = self.state();
        if state.generation != generation || !matches!(state.link, Link::Up(_)) {
            return;
        }
        tracing::warn!(reason, "a connection to Redis is replaced");
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
                Ok(opened) => {
                    self.up(opened);
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

    fn up(self: &Arc<Self>, opened: Opened) {
        let mut state = self.state();
        state.generation += 1;
        state.since = Instant::now();
        state.kept = opened.kept;
        state.link = Link::Up(opened.handle);
        state.mending = None;
        if let Some(former) = state.departing.take() {
            former.abort();
        }
        if let Departure::From(master, _) = &opened.departure {
            if state
                .master
                .as_ref()
                .is_none_or(|known| !known.is_at(master))
            {
                state.server += 1;
            }
            state.master = Some(master.clone());
            let (lane, generation, mut departure) =
                (self.clone(), state.generation, opened.departure);
            state.departing = Some(tokio::spawn(async move {
                departure.wait().await;
                lane.leave(generation, "another server is the master");
            }));
        }
        // Whatever the answer was, each call finds out for itself.
        let _ = self.rounds.saw(state.server, &opened.answer);
        self.settled.notify_waiters();
    }

    /// Takes a connection from the pool and asks whether it can be used. One that cannot carries no command: a lock that is
    /// taken by a user who may write and not expire would stay for ever.
    async fn open(&self) -> Result<Opened, StoreError> {
        let opening = async {
            let Taken {
                kept,
                mut handle,
                departure,
            } = self.source.take().await?;
            handle.set_response_timeout(self.timeouts.response + self.rounds.delay());
            let answer = match ask(&mut handle, &self.rounds.greeting()).await {
                Err(error) => return Err(self.source.objection(self.timeouts, error).await),
                Ok(answer) => understood(answer)?,
            };
            check_rights(&mut handle).await?;
            Ok(Opened {
                kept,
                handle,
                answer,
                departure,
            })
        };
        timeout(self.timeouts.connect, opening)
            .await
            .unwrap_or_else(|_| Err(self.source.too_slow()))
    }

    /// Whether commands can be sent at once, as far as is known.
    pub(super) fn is_up(&self) -> bool {
        matches!(self.state().link, Link::Up(_))
    }

    /// Ends the lane's tasks.
    pub(super) fn close(&self) {
        self.rounds.close();
        let mut state = self.state();
        let tasks = [
            state.mending.take(),
            state.checking.take(),
            state.departing.take(),
        ];
        for task in tasks.into_iter().flatten() {
            task.abort();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Something that was done, and counts when enough replicas know of it.
pub(super) struct Counting {
    pub(super) lane: Arc<Lane>,
    pub(super) sent: Sent,
}

impl Counting {
    pub(super) async fn counts(self) -> Result<(), StoreError> {
        self.lane.acknowledged(self.sent).await
    }
}

/// What is sent in one piece.
enum Question<'a> {
    Plain(&'a Cmd),
    /// Two commands, of which the second one's answer counts.
    Asking(Box<Pipeline>),
}

impl<'a> Question<'a> {
    fn new(command: &'a Cmd, asking: bool) -> Self {
        if !asking {
            return Self::Plain(command);
        }
        let mut both = Pipeline::with_capacity(2);
        both.cmd("ASKING").add_command(command.clone());
        Self::Asking(Box::new(both))
    }

    async fn put(&self, handle: &mut MultiplexedConnection) -> RedisResult<Value> {
        match self {
            Self::Plain(command) => handle.send_packed_command(command).await,
            Self::Asking(both) => {
                let answers = handle.send_packed_commands(both, 1, 1).await?;
                Ok(answers.into_iter().next().unwrap_or(Value::Nil))
            }
        }
    }
}

fn is_running(task: &Option<JoinHandle<()>>) -> bool {
    task.as_ref().is_some_and(|task| !task.is_finished())
}

/// Asks over a connection that carries nothing else yet.
async fn ask(handle: &mut MultiplexedConnection, command: &Cmd) -> Result<Value, StoreError> {
    let answer = handle.send_packed_command(command).await;
    answer.map_err(failure::no_connection)
}

async fn check_rights(handle: &mut MultiplexedConnection) -> Result<(), StoreError> {
    let rights = rights::question();
    let mut answer = ask(handle, &rights.command).await?;
    if is_unknown_script(&answer) {
        answer = ask(handle, &rights.in_full()).await?;
    }
    rights::suffice(&understood(answer)?)
}

fn understood(answer: Value) -> Result<Value, StoreError> {
    match answer {
        Value::ServerError(error) => Err(failure::refusal(error)),
        answer => Ok(answer),
    }
}

fn is_unknown_script(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript))
}

fn unreachable(text: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Unreachable, text)
}
