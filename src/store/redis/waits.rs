//! Waits for replicas, for many callers at a time.
//!
//! `WAIT` covers everything that its connection has written before it, and blocks every later command. So one `WAIT` is
//! under way at a time, and callers that write meanwhile take part in the next.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, Role, Value};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::live::Live;
use super::replicas::{Acknowledgement, Replicas};
use super::timeouts::{Timeouts, ms};
use crate::error::{StoreError, StoreErrorKind};
use crate::sync::{Mutex, MutexGuard};

/// The `WAIT`s of one connection and of those that replace it.
pub(super) struct WaitCoalescer {
    wanted: Acknowledgement,
    timeouts: Timeouts,
    state: Mutex<WaitState>,
}

/// Protected by one mutex, which is never held across an await. Between calls, callers in `next` have a task in `running`
/// that answers them; a task that ends early drops them, which also answers them. `closed` is final: afterwards no task
/// starts.
#[derive(Default)]
struct WaitState {
    next: Vec<Caller>,
    running: Option<AbortOnDropHandle<()>>,
    known: KnownReplicas,
    closed: bool,
}

struct Caller {
    sent: Arc<Live>,
    answer: oneshot::Sender<Result<(), StoreError>>,
}

/// What is known of the replicas of a server.
#[derive(Debug, Clone, Copy, Default)]
struct KnownReplicas {
    server: u64,
    connected: usize,
    /// Whether the server ever had a replica.
    any: bool,
}

impl WaitCoalescer {
    pub(super) fn new(wanted: Acknowledgement, timeouts: Timeouts) -> Arc<Self> {
        Arc::new(Self {
            wanted,
            timeouts,
            state: Mutex::default(),
        })
    }

    /// Whether a change counts only when replicas have acknowledged it.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.is_wanted()
    }

    /// How much longer an answer may take, because the `WAIT` of another caller comes first.
    pub(super) fn delay(&self) -> Duration {
        match self.is_wanted() {
            true => self.wanted.within,
            false => Duration::ZERO,
        }
    }

    /// Waits until enough replicas have everything that was written on this connection before.
    pub(super) async fn join(self: &Arc<Self>, sent: Arc<Live>) -> Result<(), StoreError> {
        let (answer, answered) = oneshot::channel();
        {
            let mut state = self.state();
            if state.closed {
                return Err(unacknowledged("the store is gone"));
            }
            state.next.push(Caller { sent, answer });
            if state
                .running
                .as_ref()
                .is_none_or(AbortOnDropHandle::is_finished)
            {
                state.running = Some(AbortOnDropHandle::new(tokio::spawn(self.clone().run())));
            }
        }
        answered
            .await
            .unwrap_or_else(|gone| Err(unacknowledged(gone)))
    }

    async fn run(self: Arc<Self>) {
        let callers = DropCallers(&self);
        while let Some(round) = self.next() {
            let last = round.iter().map(|caller| &caller.sent);
            let Some(last) = last.max_by_key(|sent| sent.generation).cloned() else {
                continue;
            };
            let generation = last.generation;
            let answer = self.ask(last).await;
            for caller in round {
                let answer = match caller.sent.generation == generation {
                    true => answer.clone(),
                    false => Err(unacknowledged("its connection broke before")),
                };
                // The caller may have been dropped.
                let _ = caller.answer.send(answer);
            }
        }
        // `next` has found no caller. One that joins after that has a task of its own, which answers it.
        std::mem::forget(callers);
    }

    /// Takes all callers that wait now; `None` ends the task.
    fn next(&self) -> Option<Vec<Caller>> {
        let mut state = self.state();
        if state.next.is_empty() {
            state.running = None;
            return None;
        }
        Some(std::mem::take(&mut state.next))
    }

    async fn ask(&self, sent: Arc<Live>) -> Result<(), StoreError> {
        let server = sent.server;
        let over = Instant::now() + self.wanted.within;
        loop {
            let expected = self.needed();
            let left = over.saturating_duration_since(Instant::now());
            let (acknowledged, role) = self.wait(&sent, expected, left).await?;
            self.saw(server, &role)?;
            let needed = self.needed();
            if acknowledged >= needed {
                return Ok(());
            }
            // There are more replicas than this `WAIT` asked for: the next one asks for all of them.
            if expected >= needed || Instant::now() >= over {
                return Err(unacknowledged(format!(
                    "{acknowledged} of {needed} replicas acknowledged it within {:?}",
                    self.wanted.within
                )));
            }
        }
    }

    fn needed(&self) -> usize {
        match self.wanted.replicas {
            Replicas::None => 0,
            Replicas::AtLeast(replicas) => replicas,
            Replicas::All => self.state().known.needed(),
        }
    }

    /// The first command on a new connection.
    pub(super) fn greeting(&self) -> Cmd {
        redis::cmd(match self.wanted.replicas {
            Replicas::All => "ROLE",
            Replicas::None | Replicas::AtLeast(_) => "PING",
        })
    }

    /// Takes in the server, and the replicas in its answer to the greeting.
    pub(super) fn saw(&self, server: u64, role: &Value) -> Result<(), StoreError> {
        if !self.state().known.moves_to(server) {
            return Err(unacknowledged("another server is the master now"));
        }
        if self.wanted.replicas != Replicas::All {
            return Ok(());
        }
        match Role::from_redis_value_ref(role) {
            Ok(Role::Primary { replicas, .. }) => {
                self.state().known.saw(replicas.len());
                Ok(())
            }
            Ok(_) => Err(unacknowledged("the server is not a master any more")),
            Err(_) => Err(unexpected_reply("ROLE", Some(role))),
        }
    }

    /// Sends `WAIT`. Returns how many replicas have acknowledged, and for `Replicas::All` the answer to `ROLE`.
    async fn wait(
        &self,
        sent: &Live,
        replicas: usize,
        left: Duration,
    ) -> Result<(usize, Value), StoreError> {
        let mut questions = redis::pipe();
        questions.cmd("WAIT").arg(replicas).arg(ms(left));
        let all = self.wanted.replicas == Replicas::All;
        if all {
            questions.cmd("ROLE");
        }
        let mut handle = sent.handle();
        let answers = handle.send_packed_commands(&questions, 0, 1 + usize::from(all));
        let silent = || unacknowledged("the server did not answer in time");
        let mut answers = tokio::select! {
            biased;
            answers = timeout(self.timeouts.response + self.wanted.within, answers) => {
                answers.map_err(|_| silent())?.map_err(unacknowledged)?.into_iter()
            }
            () = sent.given_up.cancelled() => return Err(silent()),
        };
        match answers.next() {
            Some(Value::Int(acknowledged)) => {
                let acknowledged = usize::try_from(acknowledged).unwrap_or(0);
                Ok((acknowledged, answers.next().unwrap_or(Value::Nil)))
            }
            answer => Err(unexpected_reply("WAIT", answer.as_ref())),
        }
    }

    /// Ends the task. No task starts afterwards.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.running = None;
    }

    fn state(&self) -> MutexGuard<'_, WaitState> {
        self.state.lock()
    }
}

/// Drops the callers that a task leaves when it ends with its runtime, and lets the next caller start another task.
/// Otherwise they would wait for ever.
struct DropCallers<'a>(&'a WaitCoalescer);

impl Drop for DropCallers<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        // This task's own: no other one starts before this one has finished.
        let ended = (state.running.take(), std::mem::take(&mut state.next));
        drop(state);
        drop(ended);
    }
}

impl KnownReplicas {
    /// Forgets what is known of the replicas if this is another server. Returns `false` for a former server.
    fn moves_to(&mut self, server: u64) -> bool {
        if self.server < server {
            *self = Self {
                server,
                ..Self::default()
            };
        }
        self.server == server
    }

    fn saw(&mut self, connected: usize) {
        self.connected = connected;
        self.any |= connected > 0;
    }

    fn needed(&self) -> usize {
        self.connected.max(usize::from(self.any))
    }
}

fn unacknowledged(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StoreError {
    StoreError::new(StoreErrorKind::Unacknowledged, why)
}

fn unexpected_reply(question: &str, answer: Option<&Value>) -> StoreError {
    match answer {
        Some(Value::ServerError(error)) => unacknowledged(error.clone()),
        answer => unacknowledged(format!(
            "an answer that {question} does not give: {answer:?}"
        )),
    }
}
