//! The server is killed, and started again, while clients use it.

#![cfg(test)]

mod server;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tower_distributed_lock::{FencingToken, Lease, LockClient, LockError, LockHandle, LockMode};

/// A piece of work whose release was confirmed.
#[derive(Debug, Clone, Copy)]
struct Section {
    began: Instant,
    ended: Instant,
    token: Option<FencingToken>,
}

/// What all clients do, as an observer sees it.
#[derive(Default)]
struct Observer {
    /// Those who believe now that they hold a key.
    holders: Mutex<HashMap<&'static str, Vec<LockHandle>>>,
    confirmed: Mutex<HashMap<&'static str, Vec<Section>>>,
    done: AtomicUsize,
    stop: AtomicBool,
}

impl Observer {
    /// S1: every other holder of the key has lost it by its own clock.
    fn begins(&self, key: &'static str, handle: LockHandle) {
        let mut holders = self.holders.lock().unwrap();
        let holders = holders.entry(key).or_default();
        for other in holders.iter() {
            assert!(other.is_lost(), "two live holds on {key}");
        }
        holders.push(handle);
    }

    /// Called before the release.
    fn ends(&self, key: &'static str, token: Option<FencingToken>) {
        let mut holders = self.holders.lock().unwrap();
        let holders = holders.entry(key).or_default();
        holders.retain(|other| other.fencing_token() != token);
    }

    fn confirms(&self, key: &'static str, section: Section) {
        let mut confirmed = self.confirmed.lock().unwrap();
        confirmed.entry(key).or_default().push(section);
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// S5 and S6: confirmed sections did not overlap, and their tokens rise.
    fn judge(&self) {
        for (key, sections) in self.confirmed.lock().unwrap().iter_mut() {
            sections.sort_by_key(|section| section.began);
            for pair in sections.windows(2) {
                assert!(pair[0].ended <= pair[1].began, "{key}: {pair:?} overlap");
                assert!(pair[0].token < pair[1].token, "{key}: {pair:?}");
            }
        }
    }
}

/// Works under locks until it is stopped.
async fn work(locks: LockClient, observer: Arc<Observer>, n: u64) {
    const KEYS: [(&str, LockMode); 3] = [
        ("reentrant", LockMode::Reentrant),
        ("fair", LockMode::Fair),
        ("write", LockMode::Write),
    ];
    for turn in n.. {
        if observer.stop.load(Ordering::Relaxed) {
            return;
        }
        let (key, mode) = KEYS[usize::try_from(turn).unwrap() % KEYS.len()];
        match section(&locks, key, mode, &observer, turn % 7).await {
            Ok(()) | Err(LockError::Busy { .. }) => {}
            Err(LockError::Unavailable(_) | LockError::Unconfirmed(_) | LockError::Lost) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("{key}: {error:?}"),
        }
    }
}

async fn section(
    locks: &LockClient,
    key: &'static str,
    mode: LockMode,
    observer: &Observer,
    millis: u64,
) -> Result<(), LockError> {
    let lease = Lease::Renewed(Duration::from_secs(2));
    let guard = locks.lock(key).mode(mode).lease(lease).fenced();
    let guard = guard.await?;
    let (began, token) = (Instant::now(), guard.fencing_token());
    observer.begins(key, guard.handle());
    tokio::time::sleep(Duration::from_millis(millis)).await;
    let ended = Instant::now();
    observer.ends(key, token);
    guard.release().await?;
    let section = Section {
        began,
        ended,
        token,
    };
    observer.confirms(key, section);
    Ok(())
}

/// Waits until more sections are done, whatever failed before.
async fn goes_on(observer: &Observer) {
    let wanted = observer.done.load(Ordering::Relaxed) + 30;
    let progress = async {
        while observer.done.load(Ordering::Relaxed) < wanted {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(120), progress).await;
    in_time.expect("the store works again");
}

mod postgres {
    use tower_distributed_lock_postgres::PostgresStore;

    use super::server::Server;
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_server_that_is_killed_under_load_keeps_its_promises() {
        let server = Server::shared();
        let database = server.database().await;
        let observer = Arc::<Observer>::default();
        let mut tasks = Vec::new();
        for _ in 0..3 {
            let store = PostgresStore::connect(&database.config()).await.unwrap();
            let locks = LockClient::new(store);
            let work = |n| work(locks.clone(), observer.clone(), n);
            tasks.extend((0..3).map(|n| tokio::spawn(work(n))));
        }
        for _ in 0..3 {
            goes_on(&observer).await;
            let connection = database.client().await;
            let killed = tokio::task::spawn_blocking(|| server.kill());
            killed.await.expect("the server is up again");
            let asked = connection.simple_query("SELECT 1").await;
            asked.expect_err("a kill ends every connection");
        }
        goes_on(&observer).await;
        observer.stop.store(true, Ordering::Relaxed);
        for task in tasks {
            task.await.expect("no promise is broken");
        }
        observer.judge();
    }
}
