//! A master, its replicas, and sentinels that watch them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::redis_server::Builder;
use super::{RedisServer, Replicated, eventually};

const LIMIT: Duration = Duration::from_secs(90);

/// Three sentinels over a master and two replicas.
#[derive(Debug)]
pub(crate) struct RedisSentinels {
    pub(crate) replicated: Replicated,
    pub(crate) sentinels: Vec<RedisServer>,
}

impl RedisSentinels {
    /// The name of the master.
    pub(crate) const NAME: &str = "locks";

    /// Starts the servers, and waits until the sentinels know each other and the replicas.
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// The same, with lines of the sentinels' configuration: `("failover-timeout", "60000")`.
    ///
    /// After `failover-timeout`, sentinels make replicas follow the master directly, without the
    /// proxies of their links.
    pub(crate) async fn start_with(settings: &[(&str, &str)]) -> Self {
        Self::start_like(RedisServer::builder(), settings).await
    }

    /// The same, with every server and every sentinel configured like this.
    pub(crate) async fn start_like(like: Builder, settings: &[(&str, &str)]) -> Self {
        let replicated = Replicated::start_with(2, like.clone()).await;
        let monitor = format!(
            "monitor {} 127.0.0.1 {} 2",
            Self::NAME,
            replicated.master().port()
        );
        let mut sentinel = like.sentinel().config("sentinel", &monitor);
        let defaults = [
            ("down-after-milliseconds", "1500"),
            ("failover-timeout", "8000"),
        ];
        for (name, value) in defaults.iter().chain(settings) {
            let line = format!("{name} {} {value}", Self::NAME);
            sentinel = sentinel.config("sentinel", &line);
        }
        let mut sentinels = Vec::new();
        for _ in 0..3 {
            sentinels.push(sentinel.clone().start().await);
        }
        let started = Self {
            replicated,
            sentinels,
        };
        started.until_introduced().await;
        started
    }

    async fn until_introduced(&self) {
        for sentinel in &self.sentinels {
            eventually("a sentinel knows all others", LIMIT, async || {
                let about = master(sentinel).await;
                (about["num-slaves"] == "2" && about["num-other-sentinels"] == "2")
                    .then_some(())
                    .ok_or(about)
            })
            .await;
        }
    }

    /// From now on, the sentinels name every server `localhost`.
    pub(crate) async fn announce_host_names(&self) {
        let (master, servers) = (self.replicated.master(), &self.replicated.servers);
        for server in servers {
            let words = ["CONFIG", "SET", "replica-announce-ip", "localhost"];
            server.ask::<()>(&words).await;
        }
        // They announce themselves when they connect.
        let words = ["CLIENT", "KILL", "TYPE", "replica"];
        master.ask::<()>(&words).await;
        eventually(
            "the replicas have announced themselves",
            LIMIT,
            async || {
                let info: String = master.ask(&["INFO", "replication"]).await;
                match info.matches("ip=localhost").count() == servers.len() - 1 {
                    true => Ok(()),
                    false => Err(info),
                }
            },
        )
        .await;
        let port = master.port().to_string();
        for sentinel in &self.sentinels {
            for words in [
                &["CONFIG", "SET", "resolve-hostnames", "yes"][..],
                &["CONFIG", "SET", "announce-hostnames", "yes"],
                &["REMOVE", Self::NAME],
                &["MONITOR", Self::NAME, "localhost", &port, "2"],
                &["SET", Self::NAME, "down-after-milliseconds", "1500"],
                &["SET", Self::NAME, "failover-timeout", "8000"],
            ] {
                let words = [&["SENTINEL"], words].concat();
                sentinel.ask::<()>(&words).await;
            }
        }
        self.until_introduced().await;
    }

    /// The sentinels' addresses.
    pub(crate) fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(RedisServer::url).collect()
    }

    /// The server that a majority of the live sentinels names as the master.
    pub(crate) async fn master(&self) -> Option<usize> {
        let mut votes = BTreeMap::<u16, usize>::new();
        for sentinel in &self.sentinels {
            if let Ok(port) = named_by(sentinel).await {
                *votes.entry(port).or_default() += 1;
            }
        }
        let (port, _) = votes.into_iter().find(|(_, votes)| *votes >= 2)?;
        let servers = &self.replicated.servers;
        servers.iter().position(|server| server.port() == port)
    }

    /// Waits until the sentinels agree on another master than this one, and returns it.
    pub(crate) async fn until_another_than(&self, former: usize) -> usize {
        eventually("another server is the master", LIMIT, async || {
            self.another_than(former).await
        })
        .await
    }

    /// The master that the sentinels agree on, if it is another than this one; otherwise what they say.
    async fn another_than(&self, former: usize) -> Result<usize, Vec<String>> {
        if let Some(master) = self.master().await.filter(|master| *master != former) {
            return Ok(master);
        }
        let mut said = Vec::new();
        for sentinel in &self.sentinels {
            if let Ok(mut connection) = sentinel.try_connection().await {
                let info = redis::cmd("INFO").arg("sentinel").to_owned();
                let info = info.query_async(&mut connection).await;
                said.push(info.unwrap_or_else(|error| error.to_string()));
            }
        }
        Err(said)
    }

    /// A planned failover: the master lives, and a replica takes over.
    pub(crate) async fn fail_over(&self) -> usize {
        let former = self.master().await.expect("there is a master");
        let port = self.replicated.servers[former].port();
        eventually("a planned failover is over", LIMIT, async || {
            // Refused while a failover is under way, or while no suitable replica is known. A sentinel on a slow machine gives
            // a failover up, and is asked again.
            let sentinel = &self.sentinels[0];
            if named_by(sentinel).await.is_ok_and(|named| named == port) {
                let words = ["SENTINEL", "FAILOVER", Self::NAME];
                let _ = sentinel.try_ask::<redis::Value>(&words).await;
            }
            self.another_than(former).await
        })
        .await
    }
}

/// The port of the master that this sentinel names.
async fn named_by(sentinel: &RedisServer) -> redis::RedisResult<u16> {
    let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", RedisSentinels::NAME];
    let (_, port): (String, u16) = sentinel.try_ask(&words).await?;
    Ok(port)
}

async fn master(sentinel: &RedisServer) -> BTreeMap<String, String> {
    sentinel
        .ask(&["SENTINEL", "MASTER", RedisSentinels::NAME])
        .await
}

mod tests {
    use crate::support::RedisSentinels;

    #[tokio::test]
    async fn a_master_that_is_killed_is_replaced() {
        let mut sentinels = RedisSentinels::start().await;
        assert_eq!(sentinels.master().await, Some(0));
        sentinels.replicated.servers[0].kill9();
        let master = sentinels.until_another_than(0).await;
        let server = &sentinels.replicated.servers[master];
        let role: (String, redis::Value, redis::Value) = server.ask(&["ROLE"]).await;
        assert_eq!(role.0, "master");
    }
}
