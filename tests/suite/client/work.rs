//! Work under a lock, and leaders.

use std::future::poll_fn;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use tower_distributed_lock::{Lease, LockClient, LockError, LockHandle, MemoryStore};
use tower_distributed_lock_testing::{Faults, FaultyStore};
use tracing::Level;

use super::client;
use crate::support::{Log, Process, RedisServer, eventually, example};

const LEASE: Lease = Lease::Renewed(Duration::from_millis(300));

/// Records that a future was dropped before its end.
struct Dropped<'a>(&'a AtomicBool);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn forgetful() -> (FaultyStore<MemoryStore>, LockClient) {
    let store = FaultyStore::new(MemoryStore::new(), Faults::none(), 0);
    let locks = LockClient::new(store.clone());
    (store, locks)
}

#[tokio::test]
async fn the_value_of_work_is_returned_and_the_lock_is_free_afterwards() {
    let redis = RedisServer::start().await;
    let (ours, theirs) = (client(redis.url()).await, client(redis.url()).await);
    let value = ours.lock("job").run(async |lock| {
        let busy = theirs.lock("job").wait(Duration::ZERO).await;
        assert!(matches!(busy, Err(LockError::Busy { .. })), "{busy:?}");
        lock.key().to_string()
    });
    assert_eq!(value.await.expect("confirmed"), "job");
    let next = theirs.lock("job").wait(Duration::ZERO).await;
    next.expect("it is free").release().await.expect("held");
}

#[tokio::test(start_paused = true)]
async fn work_is_dropped_when_its_lock_is_lost() {
    let (store, locks) = forgetful();
    let dropped = AtomicBool::new(false);
    let lost = locks.lock("job").lease(LEASE).run(async |_| {
        let _guard = Dropped(&dropped);
        store.flush().await;
        std::future::pending::<()>().await;
    });
    let lost = lost.await;
    assert!(matches!(lost, Err(LockError::Lost)), "{lost:?}");
    assert!(dropped.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn the_value_of_work_that_ends_after_its_lock_was_lost_is_not_returned() {
    let (store, locks) = forgetful();
    let lost = locks.lock("job").run(async |_| store.flush().await).await;
    assert!(matches!(lost, Err(LockError::Lost)), "{lost:?}");
}

/// Not even up to its first wait.
#[tokio::test(start_paused = true)]
async fn work_is_not_started_under_a_lock_that_is_lost() {
    let (_, locks) = forgetful();
    let lease = Duration::from_millis(100);
    let guard = locks.lock("job").lease(Lease::Fixed(lease)).await;
    let guard = guard.expect("free");
    tokio::time::sleep(lease).await;
    let lost = guard.run(async |_| panic!("it must not run")).await;
    assert!(matches!(lost, Err::<(), _>(LockError::Lost)), "{lost:?}");
}

/// The poll in which the loss is noticed may be the work's, too.
#[tokio::test(start_paused = true)]
async fn work_without_grace_is_not_polled_after_the_loss() {
    let (_, locks) = forgetful();
    let polls = AtomicUsize::new(0);
    let counting = |lock: LockHandle| {
        let polls = &polls;
        poll_fn(move |_| {
            polls.fetch_add(usize::from(lock.is_lost()), Ordering::Relaxed);
            Poll::<()>::Pending
        })
    };
    let limit = Duration::from_millis(100);
    let guard = locks.lock("job").max_hold(limit).await.expect("free");
    let lost = guard.run(counting).await;
    assert!(matches!(lost, Err(LockError::Lost)), "{lost:?}");
    assert_eq!(polls.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn work_with_grace_ends_by_itself_and_no_later() {
    for (tidying, tidied) in [(100, true), (1000, false)] {
        let (store, locks) = forgetful();
        let (done, dropped) = (AtomicBool::new(false), AtomicBool::new(false));
        let guard = locks.lock("job").lease(LEASE).await.expect("free");
        let lost = guard.run_with_grace(Duration::from_millis(500), async |lock| {
            let _guard = Dropped(&dropped);
            store.flush().await;
            lock.lost().await;
            tokio::time::sleep(Duration::from_millis(tidying)).await;
            done.store(true, Ordering::Relaxed);
        });
        let lost = lost.await;
        assert!(matches!(lost, Err(LockError::Lost)), "{lost:?}");
        assert!(dropped.load(Ordering::Relaxed));
        assert_eq!(done.load(Ordering::Relaxed), tidied);
    }
}

#[tokio::test]
async fn of_three_processes_one_leads_and_each_term_has_a_larger_token() {
    let redis = RedisServer::start().await;
    let leading = Arc::new(AtomicUsize::new(0));
    let terms = Arc::new(Mutex::new(Vec::new()));
    let mut fleet = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let locks = client(redis.url()).await;
        let (leading, terms) = (leading.clone(), terms.clone());
        fleet.spawn(async move {
            for _ in 0..4 {
                let term = locks.lock("scheduler").lead(Duration::ZERO, async |lock| {
                    assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0, "two lead");
                    let token = lock.fencing_token().expect("Redis has tokens");
                    terms.lock().expect("no panic").push(token);
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    leading.fetch_sub(1, Ordering::SeqCst);
                });
                term.await.expect("a clean end");
            }
        });
    }
    while let Some(ended) = fleet.join_next().await {
        ended.expect("no panic");
    }
    let terms = terms.lock().expect("no panic").clone();
    assert_eq!(terms.len(), 12);
    assert!(terms.is_sorted_by(|a, b| a < b), "{terms:?}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_term_is_lost_is_a_candidate_again() {
    let (store, locks) = forgetful();
    let terms = AtomicU64::new(0);
    let candidate = locks.lock("scheduler").lease(LEASE);
    let led = candidate.lead(Duration::ZERO, async |_| {
        let term = terms.fetch_add(1, Ordering::Relaxed) + 1;
        if term == 1 {
            store.flush().await;
            std::future::pending::<()>().await;
        }
        term
    });
    assert_eq!(led.await.expect("a second term"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_leader_with_grace_tidies_up_after_its_term_and_is_a_candidate_again() {
    for (tidying, tidied) in [(100, true), (1000, false)] {
        let (store, locks) = forgetful();
        let (terms, done) = (AtomicU64::new(0), AtomicBool::new(false));
        let candidate = locks.lock("scheduler").lease(LEASE);
        let led = candidate.lead(Duration::from_millis(500), async |lock| {
            let term = terms.fetch_add(1, Ordering::Relaxed) + 1;
            if term == 1 {
                store.flush().await;
                lock.lost().await;
                tokio::time::sleep(Duration::from_millis(tidying)).await;
                done.store(true, Ordering::Relaxed);
            }
            term
        });
        assert_eq!(led.await.expect("a second term"), 2);
        assert_eq!(done.load(Ordering::Relaxed), tidied);
    }
}

#[tokio::test(start_paused = true)]
async fn a_candidate_outlasts_a_store_that_cannot_be_reached_and_ends_with_its_client() {
    let (store, locks) = forgetful();
    let (log, _logging) = Log::at(Level::WARN);
    store.disconnect();
    let candidate = tokio::spawn({
        let candidate = locks.lock("scheduler");
        async move { candidate.lead(Duration::ZERO, async |_| "led").await }
    });
    tokio::time::sleep(Duration::from_secs(65)).await;
    assert!(!candidate.is_finished());
    let log = log.text();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("leader")).collect();
    let [_, second] = lines[..] else {
        panic!("one a minute: {log}")
    };
    assert!(second.contains("the store cannot be reached"), "{log}");
    store.reconnect();
    assert_eq!(candidate.await.expect("no panic").expect("led"), "led");

    locks
        .shutdown(Duration::from_secs(1))
        .await
        .expect("nothing is held");
    let ended = locks
        .lock("scheduler")
        .lead(Duration::ZERO, async |_| ())
        .await;
    assert!(matches!(ended, Err(LockError::Shutdown)), "{ended:?}");
}

/// The output of the processes of `examples/leader.rs`: the process of each term, in order, and every tick.
fn told(fleet: &[Process]) -> (Vec<u32>, Vec<String>) {
    let output: String = fleet.iter().map(Process::output).collect();
    let lines = || output.lines();
    let mut terms: Vec<(u64, u32)> = lines()
        .filter_map(|line| {
            let (process, term) = line.split_once(" leads in term ")?;
            Some((term.parse().ok()?, process.parse().ok()?))
        })
        .collect();
    terms.sort_unstable();
    let ticks = lines().filter(|line| line.contains(" tick "));
    (
        terms.into_iter().map(|(_, process)| process).collect(),
        ticks.map(str::to_owned).collect(),
    )
}

#[tokio::test]
async fn three_processes_follow_each_other_and_no_tick_of_a_term_runs_twice() {
    const SOON: Duration = Duration::from_secs(30);
    let redis = RedisServer::start().await;
    let mut fleet: Vec<_> = (0..3)
        .map(|_| {
            let mut command = Command::new(example("leader"));
            Process::spawn(command.env("REDIS_URL", redis.url())).expect("the example is built")
        })
        .collect();
    for terms in 1..=2 {
        let leader = eventually("one leads, and ticks", SOON, async || {
            let (leaders, ticks) = told(&fleet);
            let leader = leaders.get(terms - 1)?;
            (ticks.len() > terms).then_some(*leader)
        })
        .await;
        let leader = fleet.iter_mut().find(|process| process.id() == leader);
        let leader = leader.expect("one of them");
        match terms {
            1 => leader.terminate(),
            _ => leader.kill9(),
        }
    }
    eventually("the last one leads", SOON, async || {
        told(&fleet).0.len() == 3
    })
    .await;
    let (leaders, mut ticks) = told(&fleet);
    assert!(leaders[0] != leaders[1] && leaders[1] != leaders[2] && leaders[0] != leaders[2]);
    let all = ticks.len();
    ticks.sort_unstable();
    ticks.dedup();
    assert_eq!(ticks.len(), all, "a tick ran twice");
}
