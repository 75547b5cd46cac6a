//! How callers send commands on a connection, and wait for their answers.

use std::pin::pin;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Value};
use tokio::time::{Instant, timeout, timeout_at};

use super::wire::Wire;
use super::{Link, TRIES, is_unknown_script};
use crate::backoff::Backoff;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::protocol::failure::{self, needs_another_connection};
use crate::store::redis::protocol::script::Call;
use crate::telemetry;

impl Link {
    /// Calls a script, and returns the connection on which it was answered.
    ///
    /// The script is sent a second time only if the server did not know it.
    pub(in super::super) async fn call(
        self: &Arc<Self>,
        call: &Call,
    ) -> Result<(Value, Arc<Wire>), StoreError> {
        let (answer, sent) = self.answer(call, false).await?;
        Ok((failure::accepted(answer)?, sent))
    }

    /// The server's answer to a call; it may be an error. `asking` makes the server answer for a slot that is being moved to
    /// it.
    pub(in super::super) async fn answer(
        self: &Arc<Self>,
        call: &Call,
        asking: bool,
    ) -> Result<(Value, Arc<Wire>), StoreError> {
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
    pub(in super::super) async fn query(
        self: &Arc<Self>,
        command: &Cmd,
    ) -> Result<Value, StoreError> {
        Ok(self.send(command, false).await?.0)
    }

    async fn send(
        self: &Arc<Self>,
        command: &Cmd,
        asking: bool,
    ) -> Result<(Value, Arc<Wire>), StoreError> {
        let wire = self.wire().await?;
        let answer = self.send_on(&wire, command, asking).await?;
        Ok((answer, wire))
    }

    /// The server's answer to a command on this connection, also if another one has replaced it.
    pub(in super::super) async fn send_on(
        &self,
        wire: &Wire,
        command: &Cmd,
        asking: bool,
    ) -> Result<Value, StoreError> {
        let mut handle = wire.handle();
        let began = Instant::now();
        let answered = {
            let mut answer = pin!(put(&mut handle, command, asking));
            let timeouts = self.context.timeouts();
            let soon = timeouts.probe_after() + self.context.delay();
            match timeout_at(began + soon, &mut answer).await {
                Ok(answered) => Some(answered),
                Err(_) => {
                    // The cause, such as a network that drops packets, may affect the other connections to the server.
                    self.context.late.send_replace(());
                    let rest = timeouts.response.saturating_sub(timeouts.probe_after());
                    Box::pin(timeout(rest, answer)).await.ok()
                }
            }
        };
        let carries = self.carries();
        let unanswered = match answered {
            Some(Ok(answer)) => {
                telemetry::store::answered(carries, began);
                // There may be no new master, or no new credentials, yet: not every such answer opens a new connection.
                if needs_another_connection(&answer) && wire.since.elapsed() > Backoff::LONGEST {
                    wire.end(failure::REFUSES);
                }
                return Ok(answer);
            }
            // The command may have been sent: only an error from before the first poll proves that it was not.
            Some(Err(error)) => {
                wire.end("it broke");
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
