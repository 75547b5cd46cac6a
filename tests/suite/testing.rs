//! `FaultyStore` injects the documented faults.

use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, timeout};
use tower_distributed_lock::error::StoreErrorKind;
use tower_distributed_lock::lock::{Hold, HoldId};
use tower_distributed_lock::store::{
    Attempt, HoldStatus, Inspect, LockStore, LockStoreExt, Outcome,
};
use tower_distributed_lock::{Lease, LockClient, LockError, LockKey, LockMode, MemoryStore};
use tower_distributed_lock_testing::{Fault, Faults, FaultyStore};
use uuid::Uuid;

const MS: Duration = Duration::from_millis(1);

fn always(fault: Fault) -> FaultyStore<MemoryStore> {
    FaultyStore::new(MemoryStore::new(), Faults::none().chance(fault, 1.0), 0)
}

fn attempt(n: u64) -> Attempt {
    Attempt::new(
        Hold {
            key: LockKey::new("key"),
            mode: LockMode::Reentrant,
            id: HoldId::new(Uuid::nil(), n),
        },
        10_000 * MS,
    )
    .patience(10_000 * MS)
}

async fn is_held(store: &FaultyStore<MemoryStore>) -> bool {
    let seen = store.inner().inspect(&LockKey::new("key")).await.unwrap();
    seen.is_held()
}

async fn fails_as(store: &FaultyStore<MemoryStore>, kind: StoreErrorKind) {
    let failed = store.acquire(&attempt(1)).await.unwrap_err();
    assert_eq!(failed.kind(), kind);
}

#[tokio::test(start_paused = true)]
async fn without_faults_nothing_goes_wrong_and_nothing_takes_time() {
    let store = FaultyStore::new(MemoryStore::new(), Faults::none(), 0);
    let began = Instant::now();
    let locks = LockClient::new(store.clone());
    locks.lock("key").await.unwrap().release().await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(store.tally().calls(), 2);
    assert!(Fault::ALL.iter().all(|fault| store.tally().of(*fault) == 0));
}

#[tokio::test(start_paused = true)]
async fn a_lost_request_has_no_effect_and_a_lost_reply_has() {
    let store = always(Fault::RequestLost);
    let began = Instant::now();
    fails_as(&store, StoreErrorKind::Unanswered).await;
    assert_eq!(began.elapsed(), 100 * MS, "the caller waited for an answer");
    assert!(!is_held(&store).await);
    assert_eq!(store.tally().of(Fault::RequestLost), 1);

    let store = always(Fault::ReplyLost);
    fails_as(&store, StoreErrorKind::Unanswered).await;
    assert!(is_held(&store).await);
    assert_eq!(store.tally().of(Fault::ReplyLost), 1);
}

#[tokio::test(start_paused = true)]
async fn a_late_request_is_served_when_the_caller_has_given_up() {
    let store = always(Fault::Late);
    fails_as(&store, StoreErrorKind::Unanswered).await;
    assert!(!is_held(&store).await, "not yet");
    tokio::time::sleep(2_000 * MS).await;
    assert!(is_held(&store).await);
    assert_eq!(store.tally().of(Fault::Late), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_withdrawn_is_not_granted_late() {
    let store = always(Fault::Late);
    fails_as(&store, StoreErrorKind::Unanswered).await;
    store.set(Faults::none());
    store.withdraw(&attempt(1), true).await.unwrap();
    tokio::time::sleep(3_000 * MS).await;
    assert_eq!(store.tally().of(Fault::Late), 1, "it did arrive");
    assert!(!is_held(&store).await);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_served_twice_is_answered_once() {
    let store = always(Fault::Twice);
    let granted = store.acquire(&attempt(1)).await.unwrap();
    assert!(matches!(granted, Outcome::Granted { .. }));
    let released = store.release(&attempt(1).hold, None).await.unwrap();
    assert_eq!(released.status, HoldStatus::Held);
    assert_eq!(store.tally().of(Fault::Twice), 2);
}

#[tokio::test(start_paused = true)]
async fn a_busy_store_does_nothing_and_says_so() {
    let store = always(Fault::Busy);
    fails_as(&store, StoreErrorKind::Transient).await;
    assert!(!is_held(&store).await);
}

#[tokio::test(start_paused = true)]
async fn a_broken_connection_loses_what_is_on_its_way_and_recovers() {
    let store = always(Fault::Disconnected);
    fails_as(&store, StoreErrorKind::Unanswered).await;
    fails_as(&store, StoreErrorKind::Unreachable).await;
    assert_eq!(store.tally().unreachable(), 1);
    let other = store.clone();
    store.set(Faults::none());
    // The connection of another process is independent.
    other.check(&[attempt(1).hold]).await.unwrap();
    tokio::time::sleep(1_000 * MS).await;
    store.check(&[attempt(1).hold]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_outage_cuts_off_calls_and_its_end_wakes_listeners() {
    let slow = Faults::none().chance(Fault::Slow, 1.0).delay(100 * MS);
    let store = FaultyStore::new(MemoryStore::new(), slow, 0);
    let mut wakeups = store.subscribe(&attempt(2)).await.unwrap();
    let travelling = {
        let store = store.clone();
        tokio::spawn(async move { store.acquire(&attempt(1)).await })
    };
    tokio::task::yield_now().await;
    store.disconnect();
    let cut = travelling.await.unwrap().unwrap_err();
    assert_eq!(cut.kind(), StoreErrorKind::Unanswered);
    fails_as(&store, StoreErrorKind::Unreachable).await;
    let early = timeout(5_000 * MS, wakeups.wait()).await;
    assert!(early.is_err(), "no message can wake it");
    store.reconnect();
    assert_eq!(timeout(MS, wakeups.wait()).await, Ok(true));
}

/// Also if the connection breaks again at the moment when its listener sees that it is up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_each_outage_wakes_listeners() {
    let store = FaultyStore::new(MemoryStore::new(), Faults::none(), 0);
    let mut wakeups = store.subscribe(&attempt(1)).await.unwrap();
    for n in 0..20_000 {
        store.disconnect();
        store.reconnect();
        for _ in 0..n % 2_000 {
            std::hint::spin_loop();
        }
        store.disconnect();
        // What came before the end of the second outage.
        let _ = wakeups.wait().now_or_never();
        store.reconnect();
        let woken = timeout(1_000 * MS, wakeups.wait()).await;
        assert_eq!(woken, Ok(true), "after outage {n}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_wake_up_costs_a_poll() {
    let store = always(Fault::WakeupLost);
    let (one, other) = (
        LockClient::new(store.clone()),
        LockClient::new(store.clone()),
    );
    let guard = one.lock("key").await.unwrap();
    let waiting = tokio::spawn(other.lock("key").acquire());
    tokio::time::sleep(10 * MS).await;
    let released = Instant::now();
    guard.release().await.unwrap();
    let _guard = waiting.await.unwrap().unwrap();
    let waited = released.elapsed();
    assert!(waited > 500 * MS && waited <= 1_000 * MS, "{waited:?}");
    assert_eq!(store.tally().of(Fault::WakeupLost), 1);
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_vanishes_is_lost() {
    let store = FaultyStore::new(MemoryStore::new(), Faults::none(), 0);
    let locks = LockClient::new(store.clone());
    let guard = locks.lock("key").await.unwrap();
    store.set(Faults::none().chance(Fault::Vanished, 1.0));
    assert!(matches!(guard.release().await, Err(LockError::Lost)));
    assert_eq!(store.tally().of(Fault::Vanished), 1);
}

#[tokio::test(start_paused = true)]
async fn a_flush_takes_holds_and_places_in_the_queue() {
    let store = FaultyStore::new(MemoryStore::new(), Faults::none(), 0);
    let [holder, first, second] = [(); 3].map(|()| LockClient::new(store.clone()));
    let guard = holder.lock("key").mode(LockMode::Fair).await.unwrap();
    let waiting = [first, second].map(|locks| {
        let request = locks.lock("key").mode(LockMode::Fair);
        tokio::spawn(async move { request.acquire().await.unwrap().release().await })
    });
    tokio::time::sleep(10 * MS).await;
    store.flush().await;
    assert_eq!(store.tally().of(Fault::Flushed), 1);
    let seen = store.inner().inspect(&LockKey::new("key")).await.unwrap();
    assert!(!seen.is_held() && seen.waiters.is_empty(), "{seen:?}");
    assert!(matches!(guard.release().await, Err(LockError::Lost)));
    for waiting in waiting {
        waiting.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_admin_of_its_client_meets_no_faults() {
    let store = FaultyStore::new(MemoryStore::new(), Faults::none(), 0);
    let locks = LockClient::new(store.clone());
    let _guard = locks.lock("key").await.unwrap();
    store.set(Faults::none().chance(Fault::Busy, 1.0));
    assert!(locks.lock("other").wait(Duration::ZERO).await.is_err());
    let admin = locks.admin().unwrap();
    assert!(admin.inspect("key").await.unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_dead_process_frees_its_lock_within_a_lease() {
    let store = FaultyStore::new(MemoryStore::new(), Faults::none(), 0);
    let lease = Lease::Renewed(2_000 * MS);
    let locks = LockClient::new(store.clone());
    let _guard = locks.lock("key").lease(lease).await.unwrap();
    store.disconnect();
    let died = Instant::now();
    let alive = LockClient::new(store.inner().clone());
    alive.lock("key").await.unwrap().release().await.unwrap();
    assert!(died.elapsed() <= 2_001 * MS, "{:?}", died.elapsed());
}

#[tokio::test(start_paused = true)]
async fn one_seed_gives_one_sequence_of_faults() {
    let sequence = async |seed| {
        let faults = Faults::hostile().timeout(MS);
        let store = FaultyStore::new(MemoryStore::new(), faults, seed);
        let mut answers = Vec::new();
        for n in 0..200 {
            let answer = store.acquire(&attempt(n)).await;
            answers.push(answer.map_err(|error| error.kind()));
        }
        (answers, store.tally())
    };
    let one = sequence(1).await;
    assert_eq!(one, sequence(1).await);
    assert_ne!(one.1, sequence(2).await.1);
}

#[test]
#[should_panic(expected = "a chance is between 0 and 1: 2 for Late")]
fn a_chance_above_one_is_refused() {
    let _ = Faults::none().chance(Fault::Late, 2.0);
}

#[test]
#[should_panic(expected = "no request is late for longer than 120s")]
fn a_lateness_that_stores_need_not_remember_is_refused() {
    let _ = Faults::none().lateness(Duration::from_secs(121));
}
