//! Faults of processes, servers and the network between them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use tokio::time::sleep;

use crate::clock::now;
use crate::crew::Crew;
use crate::history::History;
use crate::support::{Ending, RedisServer};

/// A class of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blow {
    Kill,
    Pause,
    Flush,
    Restart,
    Disconnect,
    Partition,
    Cut,
}

impl Blow {
    pub(crate) const ALL: [Self; 7] = [
        Self::Kill,
        Self::Pause,
        Self::Flush,
        Self::Restart,
        Self::Disconnect,
        Self::Partition,
        Self::Cut,
    ];

    /// The name, and what counts as a hit.
    pub(crate) fn about(self) -> (&'static str, &'static str) {
        match self {
            Self::Kill => ("SIGKILL of a worker", "it was working under a lock"),
            Self::Pause => ("SIGSTOP past the lease", "it was working under a lock"),
            Self::Flush => ("FLUSHALL", "locks were held"),
            Self::Restart => ("server restart", "locks were held"),
            Self::Disconnect => ("CLIENT KILL", "connections ended"),
            Self::Partition => ("partition", "requests or replies were held back"),
            Self::Cut => ("connections reset", "connections ended"),
        }
    }
}

/// How often a fault was injected, and how often it had an effect.
pub(crate) type Scores = BTreeMap<&'static str, Score>;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Score {
    pub(crate) struck: u64,
    pub(crate) hit: u64,
    pub(crate) meaning: &'static str,
}

/// Injects faults.
pub(crate) struct Arm<'a> {
    pub(crate) servers: &'a mut [RedisServer],
    pub(crate) crew: &'a mut Crew,
    pub(crate) history: &'a mut History,
    pub(crate) random: &'a mut Rng,
}

impl Arm<'_> {
    /// Injects a fault. Returns whether it had an effect.
    pub(crate) async fn strike(&mut self, blow: Blow) -> Result<bool> {
        let worker = self.random.usize(..self.crew.workers.len());
        let server = self.random.usize(..self.servers.len());
        Ok(match blow {
            Blow::Kill => {
                let busiest = self.busiest();
                self.crew.replace(busiest, self.history).await? > 0
            }
            Blow::Pause => {
                let busiest = self.busiest();
                self.pause(busiest).await
            }
            Blow::Flush => self.flush(server).await?,
            Blow::Restart => self.restart(server).await,
            Blow::Disconnect => self.disconnect(server).await?,
            Blow::Partition => self.partition(worker).await,
            Blow::Cut => self.cut(worker).await > 0,
        })
    }

    /// The worker with the most locks.
    fn busiest(&mut self) -> usize {
        self.crew.hear(self.history);
        let busy = |place: &usize| {
            let worker = &self.crew.workers[*place];
            self.history.under_way(worker.generation)
        };
        let places = 0..self.crew.workers.len();
        places.max_by_key(busy).expect("there are workers")
    }

    /// Between half a lease and one and a half.
    fn about_a_lease(&mut self) -> Duration {
        self.crew.habits.lease().mul_f64(0.5 + self.random.f64())
    }

    async fn pause(&mut self, worker: usize) -> bool {
        let time = self.crew.habits.lease() + self.about_a_lease() / 2;
        let paused = &mut self.crew.workers[worker];
        let generation = paused.generation;
        paused.process.pause();
        sleep(time).await;
        self.crew.hear(self.history);
        let under_way = self.history.under_way(generation);
        self.crew.workers[worker].process.resume();
        under_way > 0
    }

    async fn flush(&mut self, server: usize) -> Result<bool> {
        let server = &self.servers[server];
        let held = holds(server).await;
        let before = now();
        let mut connection = server.connection().await;
        redis::cmd("FLUSHALL")
            .query_async::<()>(&mut connection)
            .await?;
        self.history.forgot(before);
        Ok(held > 0)
    }

    async fn restart(&mut self, server: usize) -> bool {
        let down = self.about_a_lease() / 2;
        let gently = self.random.bool();
        let server = &mut self.servers[server];
        let held = holds(server).await;
        let before = now();
        match gently {
            true => server.stop().await,
            false => server.kill9(),
        }
        sleep(down).await;
        server.restart().await;
        self.history.forgot(before);
        held > 0
    }

    async fn disconnect(&mut self, server: usize) -> Result<bool> {
        let mut connection = self.servers[server].connection().await;
        let mut ended = 0;
        for kind in ["normal", "pubsub"] {
            ended += redis::cmd("CLIENT")
                .arg(&["KILL", "TYPE", kind, "SKIPME", "yes"])
                .query_async::<u64>(&mut connection)
                .await?;
        }
        Ok(ended > 0)
    }

    /// Bytes that are held back are delivered late. One direction, or both.
    async fn partition(&mut self, worker: usize) -> bool {
        let time = self.about_a_lease();
        let (requests, replies) =
            [(true, true), (true, false), (false, true)][self.random.usize(..3)];
        let proxies = &self.crew.workers[worker].proxies;
        let directions = || {
            proxies.iter().flat_map(|proxy| {
                let both = [(&proxy.requests, requests), (&proxy.replies, replies)];
                both.into_iter().filter(|(_, held)| *held)
            })
        };
        directions().for_each(|(direction, _)| direction.hold());
        sleep(time).await;
        let caught: u64 = directions()
            .map(|(direction, _)| direction.tally().held)
            .sum();
        directions().for_each(|(direction, _)| direction.release());
        caught > 0
    }

    async fn cut(&mut self, worker: usize) -> usize {
        let mut ended = 0;
        for proxy in &self.crew.workers[worker].proxies {
            ended += proxy.cut(Ending::Reset).await;
        }
        ended
    }
}

/// How many keys of locks there are.
pub(crate) async fn holds(server: &RedisServer) -> usize {
    let keys = server.dump().await.into_keys();
    keys.filter(|key| !outlives_locks(key)).count()
}

/// Token counters remain, and the counters and limits of idle permits for a day; the tombstones of withdrawn attempts expire.
pub(crate) fn outlives_locks(key: &str) -> bool {
    [
        "redisson_lock_token:",
        "tower_lock_void:",
        "tower_lock_limit:",
        "permit:",
    ]
    .iter()
    .any(|kept| key.starts_with(kept))
}
