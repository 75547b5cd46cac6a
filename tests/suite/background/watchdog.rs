//! Renewals while a partition of the store is down, and when a runtime ends.

use std::thread;
use std::time::Duration;

use futures_util::future::join_all;
use metrics_util::debugging::DebuggingRecorder;
use tokio::time::{Instant, sleep};
use tower_distributed_lock::{Lease, LockClient, LockGuard, MemoryStore};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::runtimes::runtime;
use super::wired::Wired;
use crate::support::ask_all_subscribers;

const LEASE: Duration = Duration::from_secs(30);

async fn take(locks: &LockClient, part: u16, count: usize) -> Vec<LockGuard> {
    let asking = (0..count).map(|n| {
        let asking = locks.lock(format!("{part}:{n}"));
        asking.lease(Lease::Renewed(LEASE)).acquire()
    });
    let guards = join_all(asking).await;
    guards
        .into_iter()
        .map(|guard| guard.expect("free"))
        .collect()
}

/// The number of calls during an outage depends on its length, and not on the number of holds.
#[tokio::test(start_paused = true)]
async fn an_outage_is_probed_once_for_all_holds_and_the_others_are_renewed() {
    const OUTAGE: Duration = Duration::from_secs(15);
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    let (down, up) = (take(&locks, 1, 3000).await, take(&locks, 2, 300).await);
    store.cut(1);
    let began = Instant::now();
    sleep(OUTAGE).await;
    let calls = store.calls("renew", 1);
    // Attempts are at least a hundred milliseconds apart; most follow a longer pause.
    assert!(
        (5..=60).contains(&calls.len()),
        "{} calls for 3000 holds in {OUTAGE:?}",
        calls.len()
    );
    let renewed: usize = store.calls("renew", 2).iter().map(|call| call.holds).sum();
    assert!(
        renewed >= up.len(),
        "the other part is renewed meanwhile: {renewed}"
    );
    let healthy = began + LEASE * 2 / 3;
    assert!(up.iter().all(|guard| guard.deadline() > healthy));

    store.restore(1);
    sleep(LEASE).await;
    assert!(down.iter().chain(&up).all(|guard| !guard.is_lost()));
    for guard in down.into_iter().chain(up) {
        guard.release().await.expect("held all the time");
    }
    assert!(store.is_empty());
}

/// A short lease limits the growth of the pause.
#[tokio::test(start_paused = true)]
async fn a_short_lease_survives_an_outage_of_half_of_it() {
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    let lease = Duration::from_secs(3);
    let held = locks.lock("1:short").lease(Lease::Renewed(lease));
    let held = held.await.expect("free");
    let _others = take(&locks, 1, 1000).await;
    for _ in 0..10 {
        store.cut(1);
        sleep(lease / 2).await;
        store.restore(1);
        sleep(lease).await;
        assert!(!held.is_lost());
    }
    held.release().await.expect("held all the time");
}

/// The questions that hang are asked again, and keep no other from being asked.
#[tokio::test(start_paused = true)]
async fn holds_outlive_renewals_that_hang() {
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    let held = take(&locks, 1, 300).await;
    store.slow(LEASE * 100);
    while store.calls("renew", 1).len() < 2 {
        sleep(Duration::from_millis(100)).await;
    }
    store.slow(Duration::ZERO);
    sleep(LEASE * 2).await;
    assert!(held.iter().all(|guard| !guard.is_lost()));
}

/// When a partition is back and slow, a late answer ends the outage: then its holds are not asked about again and again.
#[tokio::test(start_paused = true)]
async fn a_slow_answer_ends_an_outage() {
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    let held = take(&locks, 1, 5000).await;
    store.cut(1);
    sleep(LEASE / 2).await;
    store.slow(Duration::from_millis(1500));
    store.restore(1);
    sleep(LEASE * 2).await;
    assert!(held.iter().all(|guard| !guard.is_lost()));
}

/// Such as those of a key that the user may not write any more, which were due one by one.
#[tokio::test(start_paused = true)]
async fn holds_that_cannot_be_renewed_delay_no_others() {
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    store.refuse("refused");
    let mut refused = Vec::new();
    for n in 0..20 {
        refused.push(locks.lock(format!("1:{n}:refused")).await.expect("free"));
        sleep(Duration::from_millis(100)).await;
    }
    let lease = Lease::Renewed(Duration::from_secs(3));
    let others = (0..3).map(|n| locks.lock(format!("1:{n}")).lease(lease).acquire());
    let others: Vec<_> = join_all(others).await;
    for _ in 0..100 {
        sleep(Duration::from_secs(1)).await;
        let lost = others
            .iter()
            .filter(|guard| guard.as_ref().expect("free").is_lost());
        assert_eq!(lost.count(), 0);
    }
    assert!(refused.iter().all(LockGuard::is_lost));
}

/// They were renewed together after it, and are not renewed together ever after.
#[tokio::test(start_paused = true)]
async fn renewals_are_spread_again_after_an_outage() {
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    let held = take(&locks, 1, 1000).await;
    store.cut(1);
    sleep(LEASE / 2).await;
    store.restore(1);
    sleep(Duration::from_secs(2)).await;
    let mut most = 0;
    for _ in 0..20 {
        let before = store.calls("renew", 1).len();
        sleep(LEASE / 60).await;
        let calls = store.calls("renew", 1);
        let renewed = calls[before..].iter().map(|call| call.holds);
        most = most.max(renewed.sum());
    }
    assert!(most > 0 && most < held.len() / 2, "{most} at once");
}

/// Holds that end while their partition is down are forgotten, and the partition is not probed any
/// more.
#[tokio::test(start_paused = true)]
async fn a_part_without_holds_is_not_probed() {
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    let held = take(&locks, 1, 200).await;
    store.cut(1);
    sleep(LEASE / 2).await;
    assert!(!store.calls("renew", 1).is_empty());
    drop(held);
    let before = store.calls("renew", 1).len();
    sleep(LEASE).await;
    assert_eq!(store.calls("renew", 1).len(), before);
}

/// An answer that omits a hold counts as no answer: no deadline moves, and nothing is lost.
#[tokio::test(start_paused = true)]
async fn an_answer_for_too_few_holds_moves_no_deadline() {
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    let held = take(&locks, 1, 1000).await;
    store.answer_wrongly(true);
    let deadlines = || held.iter().map(LockGuard::deadline).collect::<Vec<_>>();
    let before = deadlines();
    sleep(LEASE / 2).await;
    let asked = store.calls("renew", 1);
    assert!(
        asked.iter().any(|call| call.holds > 1),
        "no answer has several holds"
    );
    assert_eq!(deadlines(), before);
    store.answer_wrongly(false);
    sleep(LEASE).await;
    for guard in held {
        guard.release().await.expect("held all the time");
    }
}

/// It leaves while its renewal is under way, which then finds no hold.
#[tokio::test(start_paused = true)]
async fn a_hold_that_is_released_during_its_renewal_is_not_counted_as_lost() {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    let _local = metrics::set_default_local_recorder(&recorder);
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    let guard = take(&locks, 1, 1).await.remove(0);
    store.slow(Duration::from_millis(100));
    while store.calls("renew", 1).is_empty() {
        sleep(Duration::from_millis(10)).await;
    }
    store.slow(Duration::ZERO);
    guard.release().await.expect("held");
    sleep(Duration::from_secs(1)).await;
    let renewals = snapshots.snapshot().into_hashmap().into_iter();
    let renewals = renewals
        .filter(|(key, _)| key.key().name() == "distributed_lock_renewals_total")
        .map(|(_, (.., count))| count);
    assert_eq!(renewals.collect::<Vec<_>>(), []);
}

/// Locks are taken on runtimes that end, and renewed on the one that the client was given.
#[test]
fn renewals_continue_on_the_runtime_that_the_client_was_given() {
    let running = runtime();
    let locks = LockClient::builder(MemoryStore::new());
    let locks = locks.runtime(running.handle().clone()).build();
    let guards = ["first", "last"].map(|key| {
        let asking = locks.lock(key).lease(Lease::Renewed(LEASE));
        runtime().block_on(asking.acquire()).expect("free")
    });
    running.block_on(async { sleep(LEASE * 2).await });
    for guard in guards {
        assert!(!guard.is_lost(), "it is renewed");
        running
            .block_on(guard.release())
            .expect("held all the time");
    }
}

/// If the renewal task ends with renewals under way, the next task repeats them, also if the runtime that was used last has ended.
#[tokio::test(start_paused = true)]
async fn renewals_under_way_when_their_task_panics_are_asked_again() {
    for last_has_ended in [false, true] {
        let store = Wired::default();
        let locks = LockClient::new(store.clone());
        let held = take(&locks, 1, 10).await;
        let elsewhere = || runtime().block_on(take(&locks, 2, 1));
        let elsewhere = || thread::scope(|scope| scope.spawn(elsewhere).join().expect("free"));
        let _others = last_has_ended.then(elsewhere);
        store.panic_in_renewals(3);
        sleep(LEASE * 2).await;
        assert!(held.iter().all(|guard| !guard.is_lost()));
        for guard in held {
            guard.release().await.expect("held all the time");
        }
    }
}

/// Counts the warnings of the crate.
#[derive(Default)]
struct Warnings(std::sync::Arc<std::sync::atomic::AtomicUsize>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("tower_distributed_lock")
            && *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_leaves_a_hold_open_is_logged_and_no_other() {
    for (open, expected) in [("none", 0), ("open", 1)] {
        ask_all_subscribers();
        let warnings = Warnings::default();
        let lines = warnings.0.clone();
        let _logged = tracing::subscriber::set_default(warnings);
        let store = Wired::default();
        store.refuse(open);
        let locks = LockClient::new(store.clone());
        let both = ["1:held", "1:open"].map(|key| locks.lock(key).acquire());
        let both = join_all(both).await;
        tokio::time::advance(LEASE / 3).await;
        sleep(Duration::from_millis(100)).await;
        let asked = store.calls("renew", 1);
        let asked: Vec<_> = asked.iter().map(|call| call.holds).collect();
        assert_eq!(asked, [both.len()]);
        let lines = lines.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(lines, expected);
    }
}

/// Counts how often it is woken.
#[derive(Default)]
struct Woken(std::sync::atomic::AtomicUsize);

impl std::task::Wake for Woken {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

/// After a pause of the process, every hold may be over at once: that is no storm of log lines, and other tasks run meanwhile.
#[tokio::test(start_paused = true)]
async fn thousands_of_losses_are_a_few_lines() {
    let warnings = Warnings::default();
    let lines = warnings.0.clone();
    let _logged = tracing::subscriber::set_default(warnings);
    let locks = LockClient::new(Wired::default());
    let lease = tower_distributed_lock::Lease::Fixed(Duration::from_secs(5));
    let asking = (0..4000).map(|n| locks.lock(format!("1:{n}")).lease(lease).acquire());
    let guards = futures_util::future::join_all(asking).await;
    let mut losses: Vec<_> = guards
        .iter()
        .map(|guard| Box::pin(guard.as_ref().expect("free").lost()))
        .collect();
    let woken = std::sync::Arc::new(Woken::default());
    let waker = std::task::Waker::from(woken.clone());
    for lost in &mut losses {
        let polled = lost
            .as_mut()
            .poll(&mut std::task::Context::from_waker(&waker));
        assert!(polled.is_pending());
    }
    tokio::time::advance(Duration::from_secs(6)).await;
    let (mut told, mut at_once) = (0, 0);
    while told < guards.len() {
        let before = told;
        tokio::task::yield_now().await;
        told = woken.0.load(std::sync::atomic::Ordering::Relaxed);
        at_once = at_once.max(told - before);
    }
    assert!(at_once <= 500, "{at_once} losses before another task ran");
    for lost in losses {
        lost.await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let lines = lines.load(std::sync::atomic::Ordering::Relaxed);
    assert!((1..=2).contains(&lines), "{lines} lines");
}

/// It may belong to another crate. The log of its panic reaches it, too.
#[tokio::test(start_paused = true)]
async fn a_subscriber_that_panics_ends_no_renewals() {
    struct Panics;

    impl Subscriber for Panics {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() <= Level::WARN
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn event(&self, _: &Event<'_>) {
            panic!("a subscriber that panics");
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    ask_all_subscribers();
    let _logged = tracing::subscriber::set_default(Panics);
    let store = Wired::default();
    let locks = LockClient::new(store.clone());
    let kept = locks.lock("2:kept").lease(Lease::Renewed(LEASE)).await;
    let lost = locks.lock("1:lost").lease(Lease::Fixed(LEASE)).await;
    store.cut(2);
    sleep(LEASE / 2).await;
    store.restore(2);
    sleep(LEASE * 3).await;
    assert!(lost.expect("free").is_lost());
    kept.expect("free").release().await.expect("it was renewed");
}
