//! Waits for replicas, for many callers at a time.
//!
//! `WAIT` covers everything that its connection has written before it, and blocks every later command. So one `WAIT` is
//! under way at a time on a connection, and callers that write meanwhile take part in the next.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Value, from_redis_value};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::timeouts::Timeouts;
use crate::error::{BoxError, StoreError, StoreErrorKind};
use crate::store::redis::protocol::script::ms;

/// The callers that wait for replicas on one connection, and the task that sends `WAIT` for them. It ends with the connection.
pub(crate) struct AckQueue {
    callers: UnboundedSender<Caller>,
    _task: AbortOnDropHandle<()>,
    /// How long a caller waits for an answer: the runtime of the task may be blocked.
    limit: Duration,
}

type Caller = oneshot::Sender<Result<(), StoreError>>;

impl AckQueue {
    /// `needed`: how many replicas must acknowledge a change.
    pub(super) fn new(
        connection: &MultiplexedConnection,
        needed: usize,
        timeouts: Timeouts,
    ) -> Self {
        let (callers, joining) = unbounded_channel();
        let task = tokio::spawn(serve(connection.clone(), needed, timeouts, joining));
        Self {
            callers,
            _task: AbortOnDropHandle::new(task),
            // The round under way, and that of the caller.
            limit: 2 * (2 * timeouts.replicas + timeouts.response),
        }
    }

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

/// Sends one `WAIT` after the other, each for all callers that have joined since the last.
async fn serve(
    mut connection: MultiplexedConnection,
    needed: usize,
    timeouts: Timeouts,
    mut joining: UnboundedReceiver<Caller>,
) {
    let mut round = Vec::new();
    while joining.recv_many(&mut round, usize::MAX).await > 0 {
        let answer = wait(&mut connection, needed, timeouts).await;
        for caller in round.drain(..) {
            // The caller may have been dropped.
            let _ = caller.send(answer.clone());
        }
    }
}

/// One `WAIT`.
async fn wait(
    connection: &mut MultiplexedConnection,
    needed: usize,
    timeouts: Timeouts,
) -> Result<(), StoreError> {
    let question = redis::cmd("WAIT")
        .arg(needed)
        .arg(ms(timeouts.replicas))
        .to_owned();
    let answer = connection.send_packed_command(&question);
    let answer = timeout(timeouts.response + timeouts.replicas, answer).await;
    let acknowledged = match answer.map_err(|_| silent())?.map_err(unacknowledged)? {
        Value::ServerError(error) => return Err(unacknowledged(error)),
        answer => from_redis_value::<usize>(answer).map_err(unacknowledged)?,
    };
    match acknowledged >= needed {
        true => Ok(()),
        false => Err(unacknowledged(format!(
            "{acknowledged} of {needed} replicas acknowledged it within {:?}",
            timeouts.replicas
        ))),
    }
}

/// The server has not answered.
fn silent() -> StoreError {
    unacknowledged("the server did not answer in time")
}

pub(super) fn unacknowledged(why: impl Into<BoxError>) -> StoreError {
    StoreError::new(StoreErrorKind::Unacknowledged, why)
}
