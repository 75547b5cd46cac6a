//! The commands of a server.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::eventually;
use super::redis_server::{OBSERVER, RedisServer};

/// Collects a server's MONITOR lines, such as `1339518083.1 [0 127.0.0.1:6] "PTTL" "a"`; a script's calls follow as `[0 lua]`.
///
/// Redis shows no administrative commands here (CLIENT KILL, CONFIG), and the lines of the tests' own observers are left out.
#[derive(Debug)]
pub(crate) struct Monitor<'s> {
    server: &'s RedisServer,
    seen: Arc<Mutex<Vec<String>>>,
    collector: JoinHandle<()>,
}

impl<'s> Monitor<'s> {
    pub(super) async fn start(server: &'s RedisServer) -> Self {
        let monitor = server.client().get_async_monitor().await;
        let mut stream = monitor.expect("MONITOR is allowed").into_on_message();
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let lines = Arc::clone(&seen);
        let collector = tokio::spawn(async move {
            while let Some(line) = stream.next().await {
                lines.lock().expect("no thread panics here").push(line);
            }
        });
        Self {
            server,
            seen,
            collector,
        }
    }

    /// Every command that the server has executed from the start until now.
    pub(crate) async fn lines(&self) -> Vec<String> {
        let marker = Uuid::new_v4().to_string();
        let mut connection = self.server.connection().await;
        let echo = redis::cmd("ECHO")
            .arg(&marker)
            .query_async::<()>(&mut connection)
            .await;
        echo.expect("ECHO is allowed");
        let lines = eventually(
            "the marker in MONITOR",
            Duration::from_secs(30),
            async || {
                let seen = self.seen.lock().expect("no thread panics here");
                let end = seen.iter().position(|line| line.contains(&marker))?;
                Some(seen[..end].to_vec())
            },
        )
        .await;
        without_observers(lines)
    }
}

impl Drop for Monitor<'_> {
    fn drop(&mut self) {
        self.collector.abort();
    }
}

fn without_observers(lines: Vec<String>) -> Vec<String> {
    let naming = format!(r#""PING" "{OBSERVER}""#);
    let observers: HashSet<_> = lines
        .iter()
        .filter(|line| line.ends_with(&naming))
        .map(|line| client(line).to_owned())
        .collect();
    let mut ours = false;
    let foreign = |line: &String| {
        // The calls of a script follow the command that runs it, and are kept or left out with it.
        if !client(line).ends_with("lua") {
            ours = observers.contains(client(line));
        }
        !ours
    };
    lines.into_iter().filter(foreign).collect()
}

/// `0 127.0.0.1:6` from `1339518083.1 [0 127.0.0.1:6] "PTTL" "a"`.
fn client(line: &str) -> &str {
    let (_, rest) = line.split_once('[').unwrap_or_default();
    rest.split_once(']').unwrap_or_default().0
}

#[cfg(test)]
mod tests {
    use redis::AsyncTypedCommands;

    use crate::support::{Monitor, RedisServer};

    #[tokio::test]
    async fn commands_of_others_are_shown_in_order_and_those_of_observers_are_not() {
        let server = RedisServer::start().await;
        let client = redis::Client::open(server.url()).unwrap();
        let mut stranger = client.get_multiplexed_async_connection().await.unwrap();

        let monitor: Monitor<'_> = server.monitor().await;
        server.dump().await;
        stranger.set("a", "1").await.unwrap();
        let script = redis::cmd("EVAL")
            .arg("redis.call('DEL', 'a')")
            .arg(0)
            .to_owned();
        script.exec_async(&mut stranger).await.unwrap();
        let lines = monitor.lines().await;
        assert_eq!(lines.len(), 3, "{lines:#?}");
        assert!(lines[0].ends_with(r#""SET" "a" "1""#));
        assert!(lines[1].ends_with(r#""EVAL" "redis.call('DEL', 'a')" "0""#));
        assert!(lines[2].ends_with(r#"[0 lua] "DEL" "a""#));

        stranger.get("a").await.unwrap();
        assert_eq!(monitor.lines().await.len(), 4);
    }
}
