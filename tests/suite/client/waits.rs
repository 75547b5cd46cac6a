//! Waiting for a store that is slow, or silent.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};
use tower_distributed_lock::store::{LockStore, Outcome};
use tower_distributed_lock::{Lease, LockClient, LockError, LockMode, MemoryStore, Owner};
use tower_distributed_lock_testing::{Fault, Faults, FaultyStore};

use super::MODES;
use crate::redis_store::patient;
use crate::support::Site;

/// Every answer of the store takes longer than the lease.
#[tokio::test(start_paused = true)]
async fn a_guard_is_not_lost_when_it_is_returned() {
    const LEASE: Lease = Lease::Fixed(Duration::from_millis(50));
    let (mut taken, mut late) = (0, 0);
    for seed in 0..40 {
        let slow = Faults::none().chance(Fault::Slow, 1.0);
        let slow = slow.delay(Duration::from_millis(60));
        let locks = LockClient::new(FaultyStore::new(MemoryStore::new(), slow, seed));
        for request in [
            locks.lock("one"),
            locks.lock_all(["one", "two"]),
            locks.lock_any(["one", "two"]),
        ] {
            let request = request.lease(LEASE).wait(Duration::from_secs(2));
            match request.await {
                Ok(guard) => {
                    assert!(!guard.is_lost(), "{guard:?}");
                    taken += 1;
                }
                Err(LockError::Unavailable(_) | LockError::Busy { .. }) => late += 1,
                Err(error) => panic!("{error}"),
            }
            sleep(Duration::from_secs(1)).await;
        }
    }
    assert!(taken > 40, "{taken} were taken, and {late} were not");
}

/// One request asks, and others wait behind it. None of them knows a holder.
#[tokio::test(start_paused = true)]
async fn a_silent_store_is_unavailable_unless_a_holder_is_known() {
    for mode in MODES {
        let silent = Faults::none().chance(Fault::RequestLost, 1.0);
        let store = FaultyStore::new(MemoryStore::new(), Faults::none(), 1);
        let locks = LockClient::new(store.clone());
        let request = |wait| locks.lock("n").mode(mode).wait(Duration::from_millis(wait));

        store.set(silent.clone().timeout(Duration::from_secs(60)));
        let waits = [20_000, 500, 2_000, 5_000].map(|wait| request(wait).into_future());
        for refused in join_all(waits).await {
            let refused = refused.expect_err("the store says nothing");
            assert!(
                matches!(refused, LockError::Unavailable(_)),
                "{mode:?}: {refused:?}"
            );
        }
        store.set(Faults::none());
        sleep(Duration::from_secs(180)).await;

        // The lock is held, and later the store stops answering.
        let holder = locks.lock("n").mode(mode).await.expect("free");
        let rival = match mode {
            LockMode::Read => LockMode::Write,
            mode => mode,
        };
        let wait = |wait| locks.lock("n").mode(rival).wait(wait).into_future();
        let waits = [2000, 1500].map(|ms| tokio::spawn(wait(Duration::from_millis(ms))));
        sleep(Duration::from_millis(500)).await;
        store.set(silent.timeout(Duration::from_secs(60)));
        for refused in join_all(waits).await {
            let refused = refused
                .expect("it does not panic")
                .expect_err("it was held");
            assert!(
                matches!(refused, LockError::Busy { .. }),
                "{mode:?}: {refused:?}"
            );
        }
        store.set(Faults::none());
        holder.release().await.expect("held");
    }
}

/// The answers of the store are about another request of its owner, in another mode.
#[tokio::test(start_paused = true)]
async fn a_request_behind_its_owner_is_busy_while_another_process_holds() {
    for (first, second) in [
        (LockMode::Write, LockMode::Read),
        (LockMode::Read, LockMode::Write),
    ] {
        let store = MemoryStore::new();
        let (locks, elsewhere) = (LockClient::new(store.clone()), LockClient::new(store));
        let held = elsewhere.lock("n").mode(LockMode::Write).await.unwrap();
        let owner = Owner::new();
        let request = |mode| locks.lock("n").mode(mode).owner(&owner);
        let first = tokio::spawn(request(first).acquire());
        sleep(Duration::from_millis(1)).await;
        let refused = request(second).wait(Duration::from_secs(3)).await;
        assert!(
            matches!(refused, Err(LockError::Busy { .. })),
            "{second:?}: {refused:?}"
        );
        held.release().await.unwrap();
        first.await.unwrap().unwrap().release().await.unwrap();
    }
}

/// A hold of the store that has no longest hold lives longer than the request to which it would be passed on.
#[tokio::test(start_paused = true)]
async fn a_request_that_never_ends_does_not_hold_longer_than_its_longest_hold() {
    let longest = Duration::from_secs(1);
    for mode in [LockMode::Reentrant, LockMode::Read, LockMode::Write] {
        let store = MemoryStore::new();
        let (locks, elsewhere) = (LockClient::new(store.clone()), LockClient::new(store));
        let first = locks.lock("n").mode(mode).await.unwrap();
        let wedged = locks.lock("n").mode(mode).max_hold(longest).acquire();
        let wedged = tokio::spawn(wedged);
        sleep(Duration::from_millis(1)).await;
        first.release().await.unwrap();
        let wedged = wedged.await.unwrap().unwrap();
        let begun = Instant::now();
        let next = elsewhere.lock("n").mode(LockMode::Write);
        let next = match mode {
            LockMode::Reentrant => next.mode(mode),
            _ => next,
        };
        let next = next.await.unwrap();
        let waited = begun.elapsed();
        assert!(waited < longest * 3 / 2, "{mode:?}: {waited:?}");
        assert!(wedged.is_lost());
        next.release().await.unwrap();
    }
}

/// The last renewal for the first request was cut at its longest hold, and there would be no other.
#[tokio::test(start_paused = true)]
async fn a_hold_that_is_passed_on_late_lasts_for_the_longest_hold_of_the_next_request() {
    let second = Duration::from_secs(1);
    let builder = LockClient::builder(MemoryStore::new());
    let locks = builder.handover_time(100 * second).build();
    let longest = 32 * second;
    let ask = || locks.lock("n").fenced().max_hold(longest);
    let first = ask().await.unwrap();
    sleep(15 * second).await;
    let next = tokio::spawn(ask().acquire());
    sleep(second).await;
    let token = first.fencing_token().unwrap().value();
    first.release().await.unwrap();
    let next = next.await.unwrap().unwrap();
    assert_eq!(
        next.fencing_token().unwrap().value(),
        token + 1,
        "passed on"
    );
    let limit = Instant::now() + longest;
    while Instant::now() < limit - second {
        assert!(!next.is_lost() && next.deadline() <= limit);
        sleep(second).await;
    }
    timeout(second, next.lost()).await.expect("it is over");
}

/// A longest hold that is much shorter than the lease does not divide the requests.
#[tokio::test(start_paused = true)]
async fn requests_with_a_short_longest_hold_share_a_hold() {
    let locks = LockClient::new(MemoryStore::new());
    let admin = locks.admin().unwrap();
    let longest = Duration::from_secs(5);
    let read = || locks.lock("n").mode(LockMode::Read).max_hold(longest);
    let readers = (read().await.unwrap(), read().await.unwrap());
    assert_eq!(admin.inspect("n").await.unwrap().holders.len(), 1);
    sleep(longest / 2).await;
    assert!(!readers.0.is_lost() && !readers.1.is_lost());
    drop(readers);
    // And it is passed on: the second holder has the first one's token and one more.
    let write = || locks.lock("n").mode(LockMode::Write).max_hold(longest);
    let first = write().fenced().await.unwrap();
    let next = tokio::spawn(write().fenced().acquire());
    sleep(Duration::from_millis(1)).await;
    let token = first.fencing_token().unwrap().value();
    first.release().await.unwrap();
    let next = next.await.unwrap().unwrap();
    assert_eq!(next.fencing_token().unwrap().value(), token + 1);
    next.release().await.unwrap();
}

/// Another request of its owner, behind which it waited for one of the keys, has ended. By then the queue is full.
#[tokio::test(start_paused = true)]
async fn a_request_for_any_waits_on_when_one_of_its_queues_is_full() {
    let store = MemoryStore::new();
    let (locks, elsewhere) = (LockClient::new(store.clone()), LockClient::new(store));
    let (one, other) = (elsewhere.lock("one").await, elsewhere.lock("other").await);
    let owner = Owner::new();
    let moment = Duration::from_millis(10);
    let first = tokio::spawn(locks.lock("one").owner(&owner).acquire());
    sleep(moment).await;
    let any = locks.lock_any(["one", "other"]).owner(&owner);
    let any = tokio::spawn(any.max_waiters(1).acquire());
    sleep(moment).await;
    let full = [(); 2].map(|()| tokio::spawn(locks.lock("one").acquire()));
    sleep(moment).await;
    first.abort();
    sleep(moment).await;
    other.unwrap().release().await.unwrap();
    let any = any.await.unwrap().unwrap();
    assert_eq!(any.key().as_str(), "other");
    any.release().await.unwrap();
    one.unwrap().release().await.unwrap();
    for waiting in full {
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
}

/// Each of the keys has readers and writers.
#[tokio::test]
async fn a_request_for_any_takes_a_key_in_its_own_mode() {
    for site in Site::all().await {
        let (locks, elsewhere) = (site.client().await, site.client().await);
        let name = |segment: &str| format!("own mode:{}:{segment}", site.name());
        let keys = [("read", LockMode::Read), ("write", LockMode::Write)];
        let any = || locks.lock_any(keys.map(|(segment, mode)| (name(segment), mode)));
        for (free, mode) in keys {
            let [(read, _), (write, _)] = keys;
            let taken = if free == read { write } else { read };
            let taken = elsewhere.lock(name(taken)).mode(LockMode::Write);
            let taken = taken.await.unwrap();
            for wait in [Duration::ZERO, Duration::from_secs(10)] {
                let guard = any().wait(wait).await.unwrap();
                assert_eq!(guard.key().as_str(), name(free), "{}", site.name());
                assert_eq!(guard.mode(), mode, "{}", site.name());
                guard.release().await.unwrap();
            }
            taken.release().await.unwrap();
        }
    }
}

/// Each reader is an owner of its own, as every HTTP request is.
#[tokio::test]
async fn a_reader_costs_the_same_however_many_share_the_hold() {
    const READERS: usize = 60_000;
    let builder = LockClient::builder(MemoryStore::new());
    let locks = builder.share_window(Duration::from_secs(3600)).build();
    let crowd = async {
        let mut guards = Vec::with_capacity(READERS);
        for _ in 0..READERS {
            let reading = locks.lock("n").mode(LockMode::Read).owner(&Owner::new());
            let reading = reading.max_hold(Duration::from_secs(3600));
            guards.push(reading.await.expect("readers share"));
        }
        // In the order of the grants, and in reverse order.
        let rest = guards.split_off(READERS / 2);
        guards
            .into_iter()
            .chain(rest.into_iter().rev())
            .for_each(drop);
    };
    let in_time = timeout(Duration::from_secs(60), crowd).await;
    in_time.expect("one reader costs as little as another");
}

/// The first request of the process hears each release, the second is called when it is its turn. The second takes the turn of
/// the first over, and not its subscription.
#[tokio::test(start_paused = true)]
async fn a_request_is_called_although_one_for_any_key_subscribed_before_it() {
    for mode in [LockMode::Reentrant, LockMode::Write] {
        let store = MemoryStore::new();
        let here = LockClient::builder(store.clone()).handovers(0).build();
        let elsewhere = LockClient::new(store.clone());
        let held = elsewhere.lock("a").mode(mode).await.unwrap();
        let _held_too = elsewhere.lock("b").mode(mode).await.unwrap();
        let moment = Duration::from_millis(100);

        let any = tokio::spawn(here.lock_any(["a", "b"]).mode(mode).acquire());
        sleep(moment).await;
        let behind = tokio::spawn(here.lock("a").mode(mode).acquire());
        held.release().await.unwrap();
        let any = any.await.unwrap().unwrap();
        let first = patient("a", mode);
        let refused = store.acquire(&first).await.unwrap();
        assert!(matches!(refused, Outcome::Refused { .. }), "{refused:?}");
        any.release().await.unwrap();
        sleep(moment).await;
        assert!(
            !behind.is_finished(),
            "{mode:?}: the first in line has the turn"
        );

        let begun = Instant::now();
        store.withdraw(&first, false).await.unwrap();
        drop(behind.await.unwrap().unwrap());
        assert!(begun.elapsed() < moment, "{mode:?}: {:?}", begun.elapsed());
    }
}
