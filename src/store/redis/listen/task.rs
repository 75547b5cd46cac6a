//! The task that sends subscriptions.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::{PushKind, Value};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::{Change, Subscriptions};
use crate::backoff::Backoff;
use crate::store::redis::link::wire::Wire;
use crate::store::redis::protocol::channels::Channels;
use crate::store::redis::protocol::failure;

/// How long a connection may be silent before a `PING`.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Why a connection is replaced whose server may have executed a command.
const UNANSWERED: &str = "a command on it was not answered";

impl Subscriptions {
    /// Sends subscriptions on one connection after the other, on the store's thread, until the task is aborted.
    pub(super) async fn run(self: Arc<Self>) {
        let mut backoff = Backoff::STORE;
        loop {
            let began = Instant::now();
            match self.link.wire().await {
                Ok(wire) => {
                    let why = self.serve(&wire).await;
                    // It may still subscribe to what was sent. On the next one nothing was sent.
                    wire.end(why);
                    self.disconnected();
                }
                Err(error) => self.failed(&error),
            }
            if began.elapsed() > 2 * Backoff::LONGEST + self.context.timeouts().connect {
                backoff.reset();
            }
            backoff.pause().await;
        }
    }

    /// Sends subscriptions until the connection cannot be used any more, and returns why.
    async fn serve(&self, wire: &Wire) -> &'static str {
        let mut heartbeat = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let ping = redis::cmd("PING");
        loop {
            if let Err(why) = self.send_changes(wire).await {
                return why;
            }
            tokio::select! {
                () = wire.ended() => return "it broke",
                () = self.work.notified() => {}
                _ = heartbeat.tick() => {
                    // Without an answer, messages may be late as well: the listeners are woken when it answers again.
                    if self.link.send_on(wire, &ping, false).await.is_err() {
                        return UNANSWERED;
                    }
                }
            }
        }
    }

    /// Sends the subscriptions that the server does not know yet, one command for each channel: one that the user may not read does
    /// not stop the others. An error says why the connection cannot be used any more.
    ///
    /// All go to the connection that is served. The next one begins without subscriptions, so one that was sent on it before would
    /// have no end.
    pub(super) async fn send_changes(&self, wire: &Wire) -> Result<(), &'static str> {
        let channels = self.context.channels().unwrap_or(Channels::Plain);
        let changes = self.changes();
        let answers = changes.iter().map(async |change| {
            let mut command = redis::cmd(channels.subscription(change.is_wanted));
            let command = command.arg(&*change.name);
            self.link.send_on(wire, command, false).await
        });
        for (change, answer) in changes.iter().zip(join_all(answers).await) {
            match answer.map_err(|_| UNANSWERED)? {
                answer if failure::needs_another_connection(&answer) => {
                    return Err(failure::REFUSES);
                }
                Value::ServerError(error) if change.is_wanted => {
                    self.end(&change.name, failure::refusal(error));
                }
                Value::ServerError(_) => {}
                answer if fits(&answer, change) => {}
                _ => return Err("an answer on it belongs to another command"),
            }
        }
        Ok(())
    }
}

fn fits(answer: &Value, Change { name, is_wanted }: &Change) -> bool {
    let Value::Push { kind, data } = answer else {
        return false;
    };
    let began = matches!(kind, PushKind::Subscribe | PushKind::SSubscribe);
    let ended = matches!(kind, PushKind::Unsubscribe | PushKind::SUnsubscribe);
    let about = matches!(data.first(), Some(Value::BulkString(about)) if *about == name.as_bytes());
    about && if *is_wanted { began } else { ended }
}
