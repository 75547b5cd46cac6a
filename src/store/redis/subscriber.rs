//! The task that sends the subscriptions to the server.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::{PushKind, Value};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::channels::Channels;
use super::failure;
use super::live::Live;
use super::subscriptions::{Change, Subscriptions};
use crate::backoff::Backoff;

/// How long a connection may be silent before a `PING`.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The connection cannot be used any more.
struct ConnectionLost;

impl Subscriptions {
    /// Sends subscriptions on one connection after the other, until the task is aborted.
    pub(super) async fn run(self: Arc<Self>) {
        let mut backoff = Backoff::STORE;
        loop {
            let began = Instant::now();
            match self.connection.live().await {
                Ok(live) => {
                    let ConnectionLost = self.serve(live).await;
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

    async fn serve(&self, live: Arc<Live>) -> ConnectionLost {
        let (ended, generation) = (live.raw.ended.clone(), live.generation);
        // The connection ends when another one replaces it.
        drop(live);
        let mut heartbeat = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let ping = redis::cmd("PING");
        loop {
            if self.send_changes(generation).await.is_err() {
                return ConnectionLost;
            }
            tokio::select! {
                () = ended.cancelled() => return ConnectionLost,
                () = self.work.notified() => {}
                _ = heartbeat.tick() => {
                    // Without an answer, messages may be late as well: the listeners are woken when it answers again.
                    if self.connection.query(&ping).await.is_err() {
                        return ConnectionLost;
                    }
                }
            }
        }
    }

    /// Sends the subscriptions that the server does not know yet, one command for each channel: one that the user may not read does
    /// not stop the others.
    async fn send_changes(&self, generation: u64) -> Result<(), ConnectionLost> {
        let channels = self.context.settings.channels.get();
        let channels = channels.copied().unwrap_or(Channels::Plain);
        let changes = self.changes();
        let answers = changes.iter().map(async |change| {
            let mut command = redis::cmd(channels.subscription(change.is_wanted));
            self.connection.query(command.arg(&*change.name)).await
        });
        for (change, answer) in changes.iter().zip(join_all(answers).await) {
            match answer.map_err(|_| ConnectionLost)? {
                Value::ServerError(error) if change.is_wanted => {
                    self.end(&change.name, failure::refusal(error));
                }
                Value::ServerError(_) => {}
                answer if fits(&answer, change) => {}
                // When a server ends a subscription without a request, its message has the form of an answer, and the `redis`
                // crate takes it for the answer to the last command.
                _ => {
                    let why = "an answer on it belongs to another command";
                    self.connection.replace(generation, why);
                    return Err(ConnectionLost);
                }
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
