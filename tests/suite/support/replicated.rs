//! A master and its replicas.

use std::time::Duration;

use super::redis_server::Builder;
use super::{Proxy, RedisServer, eventually};

const LIMIT: Duration = Duration::from_secs(60);

/// A master with replicas; every replica follows it through a proxy of its own, where the link can be held or cut.
#[derive(Debug)]
pub(crate) struct Replicated {
    /// The master first, as long as no replica is promoted.
    pub(crate) servers: Vec<RedisServer>,
    /// The link of `servers[n + 1]`: its requests come from the replica, its replies from the master.
    pub(crate) links: Vec<Proxy>,
}

impl Replicated {
    /// Starts a master and `replicas` replicas, and waits until all of them are synchronised.
    pub(crate) async fn start(replicas: usize) -> Self {
        Self::start_with(replicas, RedisServer::builder()).await
    }

    /// The same, with the master and every replica configured like this.
    pub(crate) async fn start_with(replicas: usize, like: Builder) -> Self {
        // A replica is synchronised at once, without waiting for others.
        let like = like.config("repl-diskless-sync-delay", "0");
        let mut started = Self {
            servers: vec![like.clone().start().await],
            links: Vec::new(),
        };
        for _ in 0..replicas {
            let link = Proxy::in_front_of(&started.servers[0]).await;
            let server = like.clone().start().await;
            let port = link.port().to_string();
            let () = server.ask(&["REPLICAOF", "127.0.0.1", &port]).await;
            started.servers.push(server);
            started.links.push(link);
        }
        started.until_replicas(replicas).await;
        started
    }

    pub(crate) fn master(&self) -> &RedisServer {
        &self.servers[0]
    }

    /// Waits until the master counts this many replicas, which have all its data.
    pub(crate) async fn until_replicas(&self, replicas: usize) {
        eventually("the replicas are in step", LIMIT, async || {
            let (role, offset, followers): (String, u64, Vec<(String, u16, u64)>) =
                self.master().ask(&["ROLE"]).await;
            assert_eq!(role, "master");
            let in_step = followers.iter().filter(|follower| follower.2 == offset);
            (followers.len() == replicas && in_step.count() == replicas)
                .then_some(())
                .ok_or(followers)
        })
        .await;
    }

    /// Holds back all data between the master and its replicas.
    pub(crate) fn hold_links(&self) {
        for link in &self.links {
            link.requests.hold();
            link.replies.hold();
        }
    }
}
