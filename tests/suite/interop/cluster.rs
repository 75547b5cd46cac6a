//! Both languages in one Redis Cluster, where messages are sharded (PROTOCOL 1.9).

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Mutex;
use tower_distributed_lock::{Lease, LockClient, LockMode, Owner, RedisStore};
use uuid::Uuid;

use super::handover::{CONTESTS, LONG, is_heard};
use super::redisson::{LIMIT, Redisson, Version};
use super::{Kind, LEASE, Party, WATCHDOG, aux};
use crate::support::{RedisCluster, eventually};

/// The shared cluster, and a Redisson that ends with the last test that uses it.
struct Meeting {
    cluster: &'static RedisCluster,
    redisson: Arc<Redisson>,
    store: RedisStore,
}

impl Meeting {
    async fn open() -> Self {
        static SHARED: Mutex<Weak<Redisson>> = Mutex::const_new(Weak::new());
        let cluster = RedisCluster::shared().await;
        let mut shared = SHARED.lock().await;
        let redisson = match shared.upgrade() {
            Some(redisson) => redisson,
            None => Arc::new(Redisson::start_in(Version::V4_7, cluster, WATCHDOG).await),
        };
        *shared = Arc::downgrade(&redisson);
        let store = RedisStore::cluster(cluster.urls()).connect().await;
        Self {
            cluster,
            redisson,
            store: store.expect("the cluster answers"),
        }
    }

    fn java(&self) -> Party {
        Party::Java(self.redisson.thread())
    }

    fn rust(&self) -> Party {
        Party::Rust(LockClient::new(self.store.clone()), Owner::new())
    }

    /// Names that no other test uses, one on each server and one with braces.
    async fn names(&self) -> Vec<String> {
        let beginning = format!("meeting-{}.", Uuid::new_v4());
        let mut names = vec![format!("{{{beginning}}}tagged.")];
        for node in 0..3 {
            let name = self.cluster.name_on(node, &beginning).await;
            names.push(format!("{name}."));
        }
        names
    }

    /// Waits until there is a subscriber for the lock's release, and then for the time that it needs to
    /// sleep.
    async fn until_waiting(&self, name: &str) {
        eventually("those who wait listen", LIMIT, async || {
            !self.cluster.pubsub_channels(name).await.is_empty()
        })
        .await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }

    async fn nothing_is_left(&self, names: &[String]) {
        for name in names {
            eventually("the cluster forgets the lock", LIMIT, async || {
                let mut dump = self.cluster.dump(name).await;
                dump.retain(|key, _| !key.starts_with("redisson_lock_token:"));
                dump.retain(|key, _| !key.starts_with("redisson_unlock_latch:"));
                let channels = self.cluster.pubsub_channels(name).await;
                let left: Vec<_> = dump.into_keys().chain(channels.into_keys()).collect();
                if left.is_empty() { Ok(()) } else { Err(left) }
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_holder_excludes_the_other_language_in_every_slot() {
    let meeting = Meeting::open().await;
    let mut all = Vec::new();
    let mut contests = Vec::new();
    for (held, wanted) in CONTESTS {
        for java_holds in [true, false] {
            let names = meeting.names().await;
            all.extend(names.clone());
            for name in names {
                let (holder, rival) = match java_holds {
                    true => (meeting.java(), meeting.rust()),
                    false => (meeting.rust(), meeting.java()),
                };
                contests.push(async move {
                    let hold = holder.lock(held, &name, LEASE).await;
                    // Longer than the lease, so the holder renews.
                    let asked = WATCHDOG * 3 / 2;
                    let refused = rival.try_lock(wanted, &name, asked).await;
                    assert!(refused.is_none(), "{held} {wanted} on {name}");
                    hold.release().await;
                    let granted = rival.try_lock(wanted, &name, LIMIT).await;
                    granted.expect("it is free").release().await;
                });
            }
        }
    }
    join_all(contests).await;
    meeting.nothing_is_left(&all).await;
}

/// Only the message counts here, because our client would also poll.
#[tokio::test]
async fn every_release_of_redisson_wakes_us_in_a_cluster() {
    let meeting = Meeting::open().await;
    for (held, wanted) in CONTESTS {
        let names = meeting.names().await;
        let heard = names.iter().map(async |name| {
            let hold = meeting.java().lock(held, name, LEASE).await;
            is_heard(&meeting.store, hold, wanted, name).await;
        });
        join_all(heard).await;
        meeting.nothing_is_left(&names).await;
    }
}

/// Redisson sleeps until the lease is over, unless a message arrives on its kind of channel.
#[tokio::test]
async fn every_release_of_ours_wakes_redisson_in_a_cluster() {
    let meeting = Meeting::open().await;
    for (held, wanted) in CONTESTS {
        // Redisson itself may miss these messages, on any server.
        if held == Kind::Write {
            continue;
        }
        let names = meeting.names().await;
        let woken = names.iter().map(async |name| {
            let hold = meeting.rust().lock(held, name, Lease::Fixed(LONG)).await;
            let (waiter, lock) = (meeting.java(), name.clone());
            let waiting = tokio::spawn(async move { waiter.lock(wanted, &lock, LEASE).await });
            meeting.until_waiting(name).await;
            let released = hold.release().await;
            let granted = waiting.await.expect("the waiter is served");
            let took = granted.since - released;
            assert!(took < LONG / 3, "{held} to {wanted} on {name}: {took:?}");
            granted.release().await;
        });
        join_all(woken).await;
        meeting.nothing_is_left(&names).await;
    }
}

#[tokio::test]
async fn one_fair_queue_for_both_languages_in_a_cluster() {
    let meeting = Meeting::open().await;
    let names = meeting.names().await;
    let queues = names.iter().map(async |name| {
        let hold = meeting
            .rust()
            .lock(Kind::Fair, name, Lease::Fixed(LONG))
            .await;
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        let mut waits = Vec::new();
        for place in 0..6_usize {
            let waiter = match place % 2 {
                0 => meeting.java(),
                _ => meeting.rust(),
            };
            let (order, lock) = (order.clone(), name.clone());
            waits.push(tokio::spawn(async move {
                let held = waiter.lock(Kind::Fair, &lock, LEASE).await;
                order.lock().unwrap().push(place);
                held.release().await;
            }));
            let queue = aux("redisson_lock_queue", name);
            let slot = meeting.cluster.slot(name).await;
            let server = meeting.cluster.master_of(slot).await;
            eventually("the queue grows", LIMIT, async || {
                let server = &meeting.cluster.nodes[server];
                server.ask::<usize>(&["LLEN", &queue]).await == place + 1
            })
            .await;
        }
        hold.release().await;
        for wait in join_all(waits).await {
            wait.expect("every waiter is served");
        }
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5], "{name}");
    });
    join_all(queues).await;
    meeting.nothing_is_left(&names).await;
}

#[tokio::test]
async fn readers_of_both_languages_read_together_in_a_cluster() {
    let meeting = Meeting::open().await;
    let names = meeting.names().await;
    let reads = names.iter().map(async |name| {
        for (first, second) in [
            (meeting.java(), meeting.rust()),
            (meeting.rust(), meeting.java()),
        ] {
            let one = first.lock(Kind::Read, name, LEASE).await;
            let two = second.try_lock(Kind::Read, name, Duration::ZERO).await;
            let two = two.expect("readers share");
            for writer in [meeting.java(), meeting.rust()] {
                let refused = writer.try_lock(Kind::Write, name, Duration::ZERO).await;
                assert!(refused.is_none(), "{name}");
            }
            one.release().await;
            // The remaining holder keeps the lock alive.
            tokio::time::sleep(WATCHDOG * 3 / 2).await;
            let writer = meeting.rust();
            let refused = writer.try_lock(Kind::Write, name, Duration::ZERO).await;
            assert!(refused.is_none(), "{name}");
            two.release().await;
        }
        let guard = LockClient::new(meeting.store.clone());
        let guard = guard.lock(name).mode(LockMode::Write).wait(LIMIT).await;
        guard.expect("it is free").release().await.expect("held");
    });
    join_all(reads).await;
    meeting.nothing_is_left(&names).await;
}
