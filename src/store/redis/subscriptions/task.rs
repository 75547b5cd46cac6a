//! The task that sends subscriptions, and the runtimes on which it runs.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::{PushKind, Value};
use tokio::runtime::Handle;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::super::channels::Channels;
use super::super::failure;
use super::super::live::Live;
use super::{Change, Subscriptions};
use crate::backoff::Backoff;

/// How long a connection may be silent before a `PING`.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// How long a task of a runtime that is driven waits for its turn at most.
const STANDSTILL: Duration = Duration::from_secs(2);

/// Why a connection is replaced whose server may have executed a command.
const UNANSWERED: &str = "a command on it was not answered";

impl Subscriptions {
    /// The task runs on the runtime of the first listener, which drives the connection. When that runtime has ended, or is not
    /// driven, it continues on the store's thread.
    pub(super) fn begin(self: &Arc<Self>) -> AbortOnDropHandle<()> {
        let here = Handle::current();
        let near = AbortOnDropHandle::new(here.spawn(self.clone().run()));
        let subscriptions = self.clone();
        self.context.settings.background.spawn(async move {
            tokio::select! {
                _ = near => {}
                () = stands_still(here) => {}
            }
            // The connection may be driven by the runtime of another listener. It still subscribes to what was sent.
            let why = "the task that sent subscriptions on it does not run any more";
            subscriptions.connection.replace_any(why);
            // The former task may still be registered with `work`: this notification is for it, so that it does not take a later one.
            subscriptions.work.notify_one();
            subscriptions.run().await;
        })
    }

    /// Sends subscriptions on one connection after the other, until the task is aborted.
    async fn run(self: Arc<Self>) {
        // A former task may have sent some, on a connection that is replaced.
        self.disconnected();
        let mut backoff = Backoff::STORE;
        loop {
            let began = Instant::now();
            match self.connection.live().await {
                Ok(live) => {
                    let generation = live.generation;
                    let why = self.serve(live).await;
                    // It may still subscribe to what was sent. On the next one nothing was sent.
                    self.connection.replace(generation, why);
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
    async fn serve(&self, live: Arc<Live>) -> &'static str {
        let generation = live.generation;
        let ended = live.raw.ended.clone();
        drop(live);
        let mut heartbeat = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let ping = redis::cmd("PING");
        loop {
            if let Err(why) = self.send_changes(generation).await {
                return why;
            }
            tokio::select! {
                () = ended.cancelled() => return "it broke",
                () = self.work.notified() => {}
                _ = heartbeat.tick() => {
                    // Without an answer, messages may be late as well: the listeners are woken when it answers again.
                    if self.connection.query_on(generation, &ping).await.is_err() {
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
    async fn send_changes(&self, generation: u64) -> Result<(), &'static str> {
        let channels = self.context.settings.channels.last();
        let channels = channels.unwrap_or(Channels::Plain);
        let changes = self.changes();
        let answers = changes.iter().map(async |change| {
            let mut command = redis::cmd(channels.subscription(change.is_wanted));
            let command = command.arg(&*change.name);
            self.connection.query_on(generation, command).await
        });
        for (change, answer) in changes.iter().zip(join_all(answers).await) {
            match answer.map_err(|_| UNANSWERED)? {
                Value::ServerError(error) if change.is_wanted => {
                    self.end(&change.name, failure::refusal(error));
                }
                Value::ServerError(_) => {}
                answer if fits(&answer, change) => {}
                // When a server ends a subscription without a request, its message has the form of an answer, and the `redis`
                // crate takes it for the answer to the last command.
                _ => return Err("an answer on it belongs to another command"),
            }
        }
        Ok(())
    }
}

/// Returns when the runtime is not driven, as between two calls of `block_on`, or has ended.
async fn stands_still(runtime: Handle) {
    while let Ok(Ok(())) = timeout(STANDSTILL, runtime.spawn(async {})).await {
        sleep(STANDSTILL).await;
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
