//! Time, which stands still while a step is done.
//!
//! In memory it is tokio's, paused. A Redis server cannot be paused, but all that it holds can be made older or younger:
//! before each step a script moves whatever has a time by what is to pass, less what has passed since the step before.
//! So nothing expires because a test is slow, and a minute takes no longer than a moment.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tower_distributed_lock::Wakeups;

use super::plan::SENTINEL;

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

    /// Empties the server and begins anew.
    pub(super) async fn begin(&mut self) {
        let flushed = redis::cmd("FLUSHALL")
            .exec_async(&mut self.connection)
            .await;
        flushed.expect("it is emptied");
        self.moved = None;
    }

    /// Since this was last called, so much time has passed, however much it was.
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

    /// How long it is since time last passed, by the server's own clock.
    pub(super) async fn since(&mut self) -> Duration {
        let time = redis::cmd("TIME").query_async(&mut self.connection).await;
        let (seconds, micros): (u64, u64) = time.expect("the time");
        let now = seconds * 1000 + micros / 1000;
        Duration::from_millis(now - self.moved.unwrap_or(now))
    }

    /// Waits until all messages have been delivered that the server has sent so far: one that is sent after them, to
    /// `sentinel` on the same connection, comes last.
    pub(super) async fn deliver(&mut self, sentinel: &mut Wakeups) {
        let published = redis::cmd("PUBLISH")
            .arg(format!("redisson_lock__channel:{{{SENTINEL}}}"))
            .arg("0")
            .query_async::<u64>(&mut self.connection)
            .await;
        assert_eq!(published.expect("it is sent"), 1, "somebody listens");
        sentinel.wait().await;
    }

    /// The names of all keys, each with whether it expires.
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
            found.push((key, ttl.expect("a life") >= 0));
        }
        found
    }
}
