//! End to end: clients over a quorum.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tower_distributed_lock::{Lease, LockClient, LockError, LockGuard};

use super::*;

pub(super) fn clients<const N: usize>(stores: &[Scripted]) -> [LockClient; N] {
    std::array::from_fn(|_| LockClient::new(QuorumStore::new(stores.to_vec()).unwrap()))
}

async fn all_empty(stores: &[Scripted]) {
    sleep(20 * SECOND).await;
    for store in stores {
        assert!(store.memory().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn clients_exclude_each_other_and_all_get_their_turn_while_two_stores_die() {
    let (stores, _) = five();
    let inside = Arc::new(AtomicUsize::new(0));
    let tasks = clients::<6>(&stores).map(|locks| {
        let inside = inside.clone();
        tokio::spawn(async move {
            for _ in 0..20 {
                let guard = locks.lock("key").wait(600 * SECOND).await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                sleep(5 * MS).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.expect("it was held");
            }
        })
    });
    sleep(100 * MS).await;
    stores[0].set(Mood::Failing(StoreErrorKind::Unreachable));
    sleep(100 * MS).await;
    stores[3].set(Mood::Hanging);
    for task in tasks {
        task.await.unwrap();
    }
    set(&stores, Mood::Well);
    sleep(LEASE).await; // What was granted unheard lapses.
    all_empty(&stores).await;
}

#[tokio::test(start_paused = true)]
async fn readers_share_and_writers_exclude() {
    let (stores, _) = five();
    let [one, two] = clients(&stores);
    let first = one.lock("key").mode(LockMode::Read).await.unwrap();
    let second = two.lock("key").mode(LockMode::Read).await.unwrap();
    let writer = two.lock("key").mode(LockMode::Write).wait(SECOND).await;
    assert!(matches!(writer, Err(LockError::Busy { .. })), "{writer:?}");
    first.release().await.unwrap();
    second.release().await.unwrap();
    let writer = one.lock("key").mode(LockMode::Write).await.unwrap();
    let reader = two.lock("key").mode(LockMode::Read).wait(SECOND).await;
    assert!(matches!(reader, Err(LockError::Busy { .. })), "{reader:?}");
    writer.release().await.unwrap();
    all_empty(&stores).await;
}

#[tokio::test(start_paused = true)]
async fn readers_and_writers_do_not_starve_each_other() {
    let (stores, _) = five();
    let modes = [
        LockMode::Read,
        LockMode::Write,
        LockMode::Read,
        LockMode::Write,
    ];
    let tasks = clients::<4>(&stores)
        .into_iter()
        .zip(modes)
        .map(|(locks, mode)| {
            tokio::spawn(async move {
                let mut worst = Duration::ZERO;
                for _ in 0..30 {
                    let asked = Instant::now();
                    let guard = locks
                        .lock("key")
                        .mode(mode)
                        .wait(600 * SECOND)
                        .await
                        .unwrap();
                    worst = worst.max(asked.elapsed());
                    sleep(20 * MS).await;
                    guard.release().await.unwrap();
                }
                worst
            })
        });
    for task in tasks.collect::<Vec<_>>() {
        let worst = task.await.unwrap();
        assert!(worst < 10 * SECOND, "{worst:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_outlives_two_stores_and_is_lost_with_the_third() {
    let (stores, _) = five();
    let [locks] = clients(&stores);
    let guard = locks.lock("key").await.unwrap();
    stores[0].forget();
    stores[1].set(Mood::Failing(StoreErrorKind::Unreachable));
    sleep(2 * LEASE).await;
    assert!(!guard.is_lost());
    stores[2].forget();
    stores[1].set(Mood::Well);
    tokio::time::timeout(LEASE, guard.lost()).await.unwrap();
    assert!(matches!(guard.release().await, Err(LockError::Lost)));
}

/// A client with two holds that it shares between two readers each. One of the three stores that carry the first does not
/// answer. All stores carry the second.
async fn shared_holds() -> (Vec<Scripted>, [[LockGuard; 2]; 2]) {
    let (stores, _) = five();
    let [locks] = clients(&stores);
    let read = |key: &'static str| locks.lock(key).mode(LockMode::Read).acquire();
    set(&stores[3..], Mood::Failing(StoreErrorKind::Unreachable));
    let first = [read("first").await.unwrap(), read("first").await.unwrap()];
    set(&stores[3..], Mood::Well);
    let second = [read("second").await.unwrap(), read("second").await.unwrap()];
    stores[0].set(Mood::Failing(StoreErrorKind::Unreachable));
    (stores, [first, second])
}

#[tokio::test(start_paused = true)]
async fn an_undecided_check_does_not_lose_a_hold_that_others_share() {
    let (stores, [[first, sharer], [second, _other]]) = shared_holds().await;
    // Both are asked about in one question.
    let (first, second) = tokio::join!(first.release(), second.release());
    second.expect("all its stores but one say so");
    assert!(matches!(first, Err(LockError::Unconfirmed(_))), "{first:?}");
    assert!(
        !sharer.is_lost(),
        "too few stores have said that it is gone"
    );
    stores[0].set(Mood::Well);
    sharer.release().await.expect("it was held all the time");
}

#[tokio::test(start_paused = true)]
async fn an_undecided_check_is_asked_again_and_keeps_no_others_waiting() {
    let (stores, [[first, _sharer], [second, other]]) = shared_holds().await;
    let recovery = async {
        sleep(300 * MS).await;
        stores[0].set(Mood::Well);
    };
    let later = async {
        sleep(30 * MS).await;
        let asked = Instant::now();
        other
            .release()
            .await
            .expect("all its stores but one say so");
        assert!(asked.elapsed() < 100 * MS, "{:?}", asked.elapsed());
    };
    let (first, second, ..) = tokio::join!(first.release(), second.release(), recovery, later);
    second.expect("all its stores but one say so");
    first.expect("the third store says so in time");
}

#[tokio::test(start_paused = true)]
async fn an_undecided_renewal_moves_no_deadline_and_loses_nothing() {
    let (stores, [[first, _sharer], [second, _other]]) = shared_holds().await;
    let deadlines = [first.deadline(), second.deadline()];
    sleep(LEASE / 3 + SECOND).await;
    assert_eq!(first.deadline(), deadlines[0], "nothing is known");
    assert!(second.deadline() > deadlines[1], "it is renewed");
    stores[0].set(Mood::Well);
    // A second after the last answer, whenever that was.
    sleep(2 * SECOND).await;
    assert!(first.deadline() > deadlines[0], "it is renewed again");
    assert!(!first.is_lost() && !second.is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_majority_that_died_is_answered_soon_and_found_again() {
    let (stores, _) = five();
    let [locks] = clients(&stores);
    set(&stores[..3], Mood::Failing(StoreErrorKind::Unreachable));
    let started = Instant::now();
    let answer = locks.lock("key").wait(60 * SECOND).await;
    assert!(
        matches!(answer, Err(LockError::Unavailable(_))),
        "{answer:?}"
    );
    assert!(started.elapsed() < SECOND);
    set(&stores, Mood::Well);
    let guard = locks.lock("key").wait(SECOND).await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn several_keys_are_taken_in_a_majority() {
    let (stores, _) = five();
    let [one, two] = clients(&stores);
    stores[2].set(Mood::Failing(StoreErrorKind::Unreachable));
    let both = one.lock_all(["a", "b"]).await.unwrap();
    let any = two.lock_any(["a", "b", "c"]).wait(SECOND).await.unwrap();
    assert_eq!(any.key().as_str(), "c");
    let none = two.lock_any(["a", "b"]).wait(SECOND).await;
    assert!(matches!(none, Err(LockError::Busy { .. })), "{none:?}");
    both.release().await.unwrap();
    any.release().await.unwrap();
    all_empty(&stores).await;
}

#[tokio::test(start_paused = true)]
async fn cancelled_requests_leave_nothing() {
    let (stores, quorum) = five();
    let locks = LockClient::new(quorum.clone());
    for polls in 0..12 {
        set(&stores[..2], Mood::Slow(10 * MS));
        let mut asking = Box::pin(locks.lock("key").lease(Lease::Renewed(LEASE)).acquire());
        for _ in 0..polls {
            let asked = (&mut asking).now_or_never();
            if asked.is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(asking);
        sleep(SECOND).await;
        for store in &stores {
            let probe = impatient(1000 + polls);
            granted(&store.memory(), &probe).await;
            store.memory().release(&probe.hold, None).await.unwrap();
        }
    }
    all_empty(&stores).await;
    assert!(quorum.shared.ledger.is_empty());
}
