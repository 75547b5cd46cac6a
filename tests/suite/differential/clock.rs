//! A clock that stands still during a step.
//!
//! In memory it is tokio's paused clock. A Redis server cannot be paused, but its data can be made older or younger:
//! before each step, a script moves all times by the step's duration, minus the real time since the previous step. So
//! nothing expires because a test is slow, and a minute passes at once.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tower_distributed_lock::store::Wakeups;

use super::step::SENTINEL;
use crate::redis_store::woken;
use crate::support::eventually;

/// The clock of a Redis server.
pub(super) struct Clock {
    connection: MultiplexedConnection,
    /// The server's time when its clock was last moved.
    moved: Option<u64>,
}

impl Clock {
    pub(super) fn new(connection: MultiplexedConnection) -> Self {
        Self {
            connection,
            moved: None,
        }
    }

    /// Empties the server and resets the clock.
    pub(super) async fn begin(&mut self) {
        let flushed = redis::cmd("FLUSHALL")
            .exec_async(&mut self.connection)
            .await;
        flushed.expect("it is emptied");
        self.moved = None;
    }

    /// Makes `time` pass since the last call, whatever the real time was.
    pub(super) async fn pass(&mut self, time: Duration) {
        let moved = redis::cmd("EVAL")
            .arg(include_str!("clock.lua"))
            .arg(0)
            .arg(u64::try_from(time.as_millis()).expect("a time"))
            .arg(self.moved)
            .query_async(&mut self.connection)
            .await;
        self.moved = Some(moved.expect("time passes"));
    }

    /// The real time since the last step, by the server's clock.
    pub(super) async fn since(&mut self) -> Duration {
        let time = redis::cmd("TIME").query_async(&mut self.connection).await;
        let (seconds, micros): (u64, u64) = time.expect("the time");
        let now = seconds * 1000 + micros / 1000;
        Duration::from_millis(now - self.moved.unwrap_or(now))
    }

    /// Waits until the sentinel is the only one that listens on its channel: the server takes a moment to notice that the store
    /// of the previous sequence has gone.
    pub(super) async fn until_one_sentinel(&mut self) {
        eventually("only one sentinel", Duration::from_secs(60), async || {
            let mut question = redis::cmd("PUBSUB");
            question.arg("NUMSUB").arg(sentinels_channel());
            let answer = question.query_async(&mut self.connection).await;
            let (_, listeners): (String, u64) = answer.expect("their number");
            listeners == 1
        })
        .await;
    }

    /// Waits until all messages of the server so far are delivered: a later message to `sentinel` on the same connection
    /// arrives last.
    pub(super) async fn deliver(&mut self, sentinel: &mut Wakeups) {
        let published = redis::cmd("PUBLISH")
            .arg(sentinels_channel())
            .arg("0")
            .query_async::<u64>(&mut self.connection)
            .await;
        assert_eq!(published.expect("it is sent"), 1, "a client listens");
        woken(sentinel).await;
    }

    /// The names of all keys, and whether each expires. No step leaves a key that expires within milliseconds, but for the turn of
    /// waiters outside the line.
    pub(super) async fn keys(&mut self) -> Vec<(String, bool)> {
        let keys: Vec<String> = redis::cmd("KEYS")
            .arg("*")
            .query_async(&mut self.connection)
            .await
            .expect("all keys");
        let mut found = Vec::new();
        for key in keys {
            let ttl = redis::cmd("PTTL")
                .arg(&key)
                .query_async::<i64>(&mut self.connection)
                .await;
            match ttl.expect("a life") {
                // It has expired meanwhile, or does at once.
                -2 | 0..=5 => {}
                ttl => found.push((key, ttl >= 0)),
            }
        }
        found
    }
}

fn sentinels_channel() -> String {
    format!("redisson_lock__channel:{{{SENTINEL}}}")
}
