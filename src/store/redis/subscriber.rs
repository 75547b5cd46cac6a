//! The task that owns the connection for wake-ups.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

use super::channels::{ChannelSink, ChannelStream, ConnectionLost, ServerMessage};
use super::master::FollowedMaster;
use super::subscriptions::{RestartOnDrop, Subscriptions};
use crate::backoff::Backoff;
use crate::telemetry;

/// How long a connection may be silent before a `PING`.
const HEARTBEAT: Duration = Duration::from_secs(5);

impl Subscriptions {
    /// Connects, listens, and reconnects, until the task is aborted. `on_callers_runtime`: the task runs on a caller's
    /// runtime, which may end first.
    pub(super) async fn run(self: Arc<Self>, on_callers_runtime: bool) {
        let _restart = on_callers_runtime.then(|| RestartOnDrop(Arc::downgrade(&self)));
        // A previous task may have ended with its runtime.
        self.disconnected();
        let mut backoff = Backoff::STORE;
        loop {
            let began = Instant::now();
            let channels = self.channels;
            let opening = self.context.reach(|endpoint| channels.open(endpoint));
            match opening.await {
                Ok(((sink, stream), master)) => {
                    self.connected();
                    let ConnectionLost = self.serve(sink, stream, master).await;
                    tracing::warn!("the connection to Redis that listens for wake-ups is replaced");
                    self.disconnected();
                }
                Err(error) => {
                    tracing::debug!(%error, "no connection to Redis for wake-ups");
                    telemetry::store::failed(telemetry::store::WAKE_UPS);
                    self.failed(error);
                }
            }
            if began.elapsed() > 2 * Backoff::LONGEST + self.context.timeouts().connect {
                backoff.reset();
            }
            backoff.pause().await;
        }
    }

    async fn serve(
        &self,
        mut sink: ChannelSink,
        mut stream: ChannelStream,
        mut master: Option<FollowedMaster>,
    ) -> ConnectionLost {
        let _up = telemetry::store::connected(telemetry::store::WAKE_UPS);
        let mut heartbeat = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if self.send_difference(&mut sink, &mut stream).await.is_err() {
                return ConnectionLost;
            }
            let asked = tokio::select! {
                received = stream.next() => {
                    if self.take_in(received).is_err() {
                        return ConnectionLost;
                    }
                    continue;
                }
                () = self.work.notified() => continue,
                // A former master forwards messages of the current one only while it follows it.
                Some(true) = OptionFuture::from(master.as_mut().map(FollowedMaster::replaced)) => {
                    return ConnectionLost;
                }
                _ = heartbeat.tick() => false,
                () = self.probe.notified() => true,
            };
            let limit = self.context.timeouts().probe();
            let answered = self.meanwhile(&mut stream, sink.ping(), limit).await;
            if answered.is_err() {
                if !asked {
                    self.context.probe_all();
                }
                return ConnectionLost;
            }
        }
    }

    /// Sends the subscriptions that the server does not know yet.
    async fn send_difference(
        &self,
        sink: &mut ChannelSink,
        stream: &mut ChannelStream,
    ) -> Result<(), ConnectionLost> {
        loop {
            let (difference, limit) = (self.difference(), self.context.timeouts().response);
            if difference.join.is_empty() && difference.leave.is_empty() {
                return Ok(());
            }
            if !difference.join.is_empty() {
                let answers = self
                    .meanwhile(stream, sink.join(&difference.join), limit)
                    .await?;
                for (name, answer) in difference.join.iter().zip(answers) {
                    self.joined(name, answer);
                }
            }
            if !difference.leave.is_empty() {
                self.meanwhile(stream, sink.leave(&difference.leave), limit)
                    .await?;
                for name in &difference.leave {
                    self.left(name);
                }
            }
        }
    }

    /// Waits for an answer of the server, and takes in messages meanwhile. If another connection to the server got no
    /// answer, the limit is that of a probe.
    async fn meanwhile<T>(
        &self,
        stream: &mut ChannelStream,
        question: impl Future<Output = Result<T, ConnectionLost>>,
        limit: Duration,
    ) -> Result<T, ConnectionLost> {
        let mut answer = pin!(question);
        let mut over = pin!(sleep(limit));
        loop {
            tokio::select! {
                answer = &mut answer => {
                    // Messages that arrived before the answer are taken in before the answer.
                    while let Some(received) = stream.received() {
                        self.take_in(received)?;
                    }
                    return answer;
                }
                received = stream.next() => self.take_in(received)?,
                () = &mut over => return Err(ConnectionLost),
                () = self.probe.notified() => {
                    let soon = Instant::now() + self.context.timeouts().probe();
                    let earlier = over.deadline().min(soon);
                    over.as_mut().reset(earlier);
                }
            }
        }
    }

    fn take_in(&self, received: Option<ServerMessage>) -> Result<(), ConnectionLost> {
        match received {
            Some(ServerMessage::Message(channel)) => self.wake(&channel),
            Some(ServerMessage::Gone(channel)) if !self.gone(&channel) => {
                return Err(ConnectionLost);
            }
            Some(ServerMessage::Gone(_)) => {}
            None => return Err(ConnectionLost),
        }
        Ok(())
    }
}
