//! `LockClient::events` and `LockClient::snapshot`.

use std::time::Duration;

use tokio::time::sleep;
use tower_distributed_lock::client::{LockEvent, LockEventKind};
use tower_distributed_lock::{Lease, LockClient, LockError, LockMode, MemoryStore};

const MS: Duration = Duration::from_millis(1);

fn what(event: &LockEvent) -> (&str, Option<LockMode>, Option<&str>) {
    (event.key.as_str(), event.mode, event.route)
}

#[tokio::test(start_paused = true)]
async fn a_listener_is_told_of_a_grant_after_a_wait_a_refusal_a_break_and_a_loss() {
    let locks = LockClient::new(MemoryStore::new());
    let mut events = locks.events();
    let write = |route: &'static str| locks.lock("k").mode(LockMode::Write).label(route);

    // A lock that is free is no event.
    let first = write("/first").await.unwrap();
    let waiting = tokio::spawn(write("/second").into_future());
    sleep(50 * MS).await;
    first.release().await.unwrap();
    let second = waiting.await.unwrap().unwrap();
    let granted = events.next().await.unwrap();
    assert_eq!(
        what(&granted),
        ("k", Some(LockMode::Write), Some("/second"))
    );
    let LockEventKind::Granted { waited } = granted.kind else {
        panic!("{granted:?}");
    };
    assert_eq!(waited, 50 * MS);

    let several = locks.lock_all([("k", LockMode::Write), ("l", LockMode::Reentrant)]);
    assert!(several.wait(20 * MS).await.is_err());
    let refused = events.next().await.unwrap();
    assert_eq!(what(&refused), ("k", None, None));
    let LockEventKind::Refused { error, waited } = refused.kind else {
        panic!("{refused:?}");
    };
    assert!(matches!(error, LockError::Busy { .. }), "{error}");
    assert_eq!(waited, 20 * MS);

    locks.admin().unwrap().force_unlock("k").await.unwrap();
    let broken = events.next().await.unwrap();
    assert!(matches!(broken.kind, LockEventKind::Broken), "{broken:?}");
    assert_eq!(what(&broken), ("k", None, None));
    second.release().await.unwrap_err();
    let lost = events.next().await.unwrap();
    assert!(matches!(lost.kind, LockEventKind::Lost { .. }), "{lost:?}");
    assert_eq!(what(&lost), ("k", Some(LockMode::Write), Some("/second")));

    drop(locks);
    assert!(events.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_has_each_key_with_its_holds_and_its_waiters_in_order() {
    let store = MemoryStore::new();
    let [locks, other] = [(); 2].map(|()| {
        let builder = LockClient::builder(store.clone());
        builder.namespace("prod-shop").build()
    });
    let elsewhere = other.lock("elsewhere").await.unwrap();
    let lease = Lease::Fixed(1000 * MS);
    let here = locks.lock("here").lease(lease).label("/here");
    let here = here.await.unwrap();
    let mut waiting = Vec::new();
    for (key, label) in [("here", "/1"), ("here", "/2"), ("elsewhere", "/3")] {
        let request = locks.lock(key).label(label);
        waiting.push(tokio::spawn(request.into_future()));
        sleep(100 * MS).await;
    }
    assert_eq!(locks.snapshot().count(), 2);
    let seen = locks.snapshot_of("here").unwrap();
    let [hold] = &seen.holds[..] else {
        panic!("{seen:?}");
    };
    assert_eq!(
        (hold.id.client(), hold.mode),
        (locks.id(), LockMode::Reentrant)
    );
    assert_eq!((hold.guards, hold.is_lost), (1, false));
    assert_eq!(hold.held, 300 * MS);
    assert!(hold.remaining <= 700 * MS && hold.remaining > 600 * MS);
    let waiters = seen.waiters.iter();
    let waiters: Vec<_> = waiters.map(|one| (one.route, one.waited)).collect();
    assert_eq!(waiters, [(Some("/1"), 300 * MS), (Some("/2"), 200 * MS)]);
    assert!(!seen.waiters[0].in_store);
    let seen = locks.snapshot_of("elsewhere").unwrap();
    assert!(
        seen.holds.is_empty() && seen.waiters[0].in_store,
        "{seen:?}"
    );
    assert!(locks.snapshot_of("nowhere").is_none());

    here.release().await.unwrap();
    elsewhere.release().await.unwrap();
    for waiter in waiting {
        drop(waiter.await.unwrap().unwrap());
    }
}
