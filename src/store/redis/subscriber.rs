//! The task that owns the connection for wake-ups.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::{PubSub, PubSubSink, PubSubStream};
use redis::{ErrorKind, RedisError, RedisResult, Value};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};

use super::failure;
use super::sentinel::Departure;
use super::subscriptions::Shared;
use crate::error::StoreError;

/// How often a quiet connection is asked whether it is alive.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The pause after the first failure to connect; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The connection is of no use any more.
struct Lost;

impl Shared {
    /// Connects, listens, and connects again, until the task is aborted.
    pub(super) async fn run(self: Arc<Self>) {
        // An earlier task may have ended with its runtime.
        self.disconnected();
        let mut pause = FIRST_PAUSE;
        loop {
            let began = Instant::now();
            match self.open().await {
                Ok((pubsub, departure)) => {
                    self.connected();
                    let Lost = self.serve(pubsub, departure).await;
                    tracing::warn!("the connection to Redis that listens for wake-ups is replaced");
                    self.disconnected();
                }
                Err(error) => {
                    tracing::debug!(%error, "no connection to Redis for wake-ups");
                    self.failed(error);
                }
            }
            if began.elapsed() > 2 * LONGEST_PAUSE + self.timeouts.connect {
                pause = FIRST_PAUSE;
            }
            sleep(pause.mul_f64(0.75 + fastrand::f64() / 4.0)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn open(&self) -> Result<(PubSub, Departure), StoreError> {
        timeout(self.timeouts.connect, self.source.listen())
            .await
            .unwrap_or_else(|_| Err(self.source.too_slow()))
    }

    async fn serve(&self, pubsub: PubSub, mut departure: Departure) -> Lost {
        let (mut sink, mut stream) = pubsub.split();
        let mut heartbeat = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if self.tell(&mut sink, &mut stream).await.is_err() {
                return Lost;
            }
            tokio::select! {
                message = stream.next() => match message {
                    Some(message) => self.wake(message.get_channel_name()),
                    None => return Lost,
                },
                () = self.work.notified() => {}
                // A former master passes on what the present one tells it, but only while it follows it.
                () = departure.wait() => return Lost,
                _ = heartbeat.tick() => {
                    let ping = sink.ping::<Value>();
                    if self.meanwhile(&mut stream, ping).await.is_err() {
                        return Lost;
                    }
                }
            }
        }
    }

    /// Tells the server what it does not know yet.
    async fn tell(&self, sink: &mut PubSubSink, stream: &mut PubSubStream) -> Result<(), Lost> {
        loop {
            let difference = self.difference();
            if difference.join.is_empty() && difference.leave.is_empty() {
                return Ok(());
            }
            if !difference.join.is_empty() {
                let names = as_strs(&difference.join);
                let answer = self.meanwhile(stream, sink.subscribe(&names)).await?;
                if answer.is_err() && names.len() > 1 {
                    // One that is not allowed shall not keep the others from listening.
                    for name in &difference.join {
                        let answer = self.meanwhile(stream, sink.subscribe(&**name)).await?;
                        self.joined(name, answer);
                    }
                } else {
                    for name in &difference.join {
                        self.joined(name, answer.clone());
                    }
                }
            }
            if !difference.leave.is_empty() {
                let names = as_strs(&difference.leave);
                // Refused or not: nobody listens.
                let _ = self.meanwhile(stream, sink.unsubscribe(&names)).await?;
                for name in &difference.leave {
                    self.left(name);
                }
            }
        }
    }

    /// Waits for an answer of the server, and passes messages on meanwhile.
    async fn meanwhile<T>(
        &self,
        stream: &mut PubSubStream,
        question: impl Future<Output = RedisResult<T>>,
    ) -> Result<Result<T, StoreError>, Lost> {
        let mut answer = pin!(timeout(self.timeouts.response, question));
        loop {
            tokio::select! {
                answer = &mut answer => return match answer {
                    Ok(Ok(answer)) => Ok(Ok(answer)),
                    Ok(Err(error)) if is_answer(&error) => Ok(Err(failure::no_connection(error))),
                    _ => Err(Lost),
                },
                message = stream.next() => match message {
                    Some(message) => self.wake(message.get_channel_name()),
                    None => return Err(Lost),
                },
            }
        }
    }
}

fn is_answer(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
}

fn as_strs(names: &[Arc<str>]) -> Vec<&str> {
    names.iter().map(|name| &**name).collect()
}
