//! A slot that moves from one server to another, with its keys.

use std::num::NonZeroU32;
use std::time::Duration;

use futures_util::future::join_all;
use tower_distributed_lock::error::StoreErrorKind;
use tower_distributed_lock::store::{HoldStatus, Inspect, LockStore, Renewal};
use tower_distributed_lock::{Lease, LockClient, LockError, LockMode, RedisStore};

use super::{LIMIT, beginning, channels_on, sent, sharded, watch};
use crate::redis_store::{
    LEASE, MODES, asks, asleep, attempt, error_kind, holds, over, patient, releases, woken,
};
use crate::support::{RedisCluster, eventually};

/// Shorter than the waits of the tests: a hold that outlives it was renewed.
const SHORT: Duration = Duration::from_secs(2);

/// The cluster of the tests that move slots, and a store of this test's own.
async fn movers() -> (&'static RedisCluster, RedisStore) {
    let cluster = RedisCluster::shared_by_movers().await;
    (cluster, super::store(cluster).await)
}

/// A store with plain channels, which no server of the Cluster ends.
async fn plain(cluster: &RedisCluster) -> RedisStore {
    let store = RedisStore::cluster(cluster.urls()).sharded_channels(false);
    store.connect().await.unwrap()
}

/// A name on the first master that no other test shares a slot with, and its slot.
async fn on_first(cluster: &RedisCluster) -> (String, u16) {
    let name = cluster.name_on(0, &beginning()).await;
    let slot = cluster.slot(&name).await;
    (name, slot)
}

#[tokio::test]
async fn a_hold_goes_with_its_slot() {
    let (cluster, store) = movers().await;
    let locks = LockClient::new(store);
    let holds = MODES.map(async |mode| {
        let (name, slot) = on_first(cluster).await;
        let request = locks.lock(&name).mode(mode).lease(Lease::Renewed(SHORT));
        let guard = request.await.unwrap();
        cluster.move_slot(slot, 0, 1).await;
        tokio::time::sleep(SHORT * 3 / 2).await;
        assert!(!guard.is_lost(), "{mode:?}");
        assert!(cluster.has(&name).await);
        guard.release().await.unwrap();
        assert!(!cluster.has(&name).await);
    });
    join_all(holds).await;
}

#[tokio::test]
async fn a_subscription_is_over_when_its_slot_has_moved_and_begins_again_where_it_has_gone() {
    let (cluster, by_default) = movers().await;
    let by_default = (by_default, sharded(cluster).await);
    for (store, sharded) in [by_default, (plain(cluster).await, false)] {
        let (name, slot) = on_first(cluster).await;
        let holder = attempt(name.as_str(), LockMode::Reentrant);
        assert!(asks(&store, &holder).await);
        let waiter = attempt(name.as_str(), LockMode::Reentrant);
        let mut wakeups = store.subscribe(&waiter).await.unwrap();
        for (from, to) in [(0, 1), (1, 2), (2, 0)] {
            cluster.move_slot(slot, from, to).await;
            if !sharded {
                // A plain channel belongs to no slot, so no server reports the move. The next question learns of it.
                assert!(!asks(&store, &waiter).await);
            }
            over(&mut wakeups).await;
            wakeups = store.subscribe(&waiter).await.unwrap();
            assert_eq!(channels_on(&cluster.nodes[to], &name).await.len(), 1);
            asleep(&mut wakeups).await;
            eventually("none listens where the slot was", LIMIT, async || {
                channels_on(&cluster.nodes[from], &name).await.is_empty()
            })
            .await;
        }
        assert!(releases(&store, &holder).await);
        woken(&mut wakeups).await;
        drop(store);
        over(&mut wakeups).await;
    }
}

#[tokio::test]
async fn a_waiter_is_woken_where_its_slot_has_gone() {
    let (cluster, store) = movers().await;
    let locks = LockClient::new(store);
    let strangers = LockClient::new(super::store(cluster).await);
    for mode in [LockMode::Reentrant, LockMode::Fair, LockMode::Write] {
        let (name, slot) = on_first(cluster).await;
        let held = strangers.lock(&name).mode(mode).await.unwrap();
        let waiting = tokio::spawn(locks.lock(&name).mode(mode).wait(LIMIT).acquire());
        eventually("it listens", LIMIT, async || {
            !cluster.pubsub_channels(&name).await.is_empty()
        })
        .await;
        cluster.move_slot(slot, 0, 2).await;
        held.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
}

/// Redis counts the listeners of the server at which a message is published. A store is one, for all that listen through it.
#[tokio::test]
async fn listeners_on_plain_channels_are_counted_where_their_slot_has_gone() {
    let (cluster, _) = movers().await;
    let store = plain(cluster).await;
    let (name, slot) = on_first(cluster).await;
    let [first, outside] = [patient, attempt].map(|of| of(name.as_str(), LockMode::Reentrant));
    let redissons = "00000000-0000-4000-8000-000000000000:1";
    let channel = format!("redisson_lock__channel:{{{name}}}");
    let [from, to] = [0, 1].map(|node| &cluster.nodes[node]);
    from.ask::<()>(&["HSET", &name, redissons, "1"]).await;
    from.ask::<()>(&["PEXPIRE", &name, "60000"]).await;
    let mut wakeups = store.subscribe(&first).await.unwrap();
    assert!(!asks(&store, &first).await);
    // It listens on Redisson's channel now.
    woken(&mut wakeups).await;

    cluster.move_slot(slot, 0, 1).await;
    assert!(!asks(&store, &first).await);
    over(&mut wakeups).await;
    let mut again = store.subscribe(&first).await.unwrap();
    eventually("it listens to Redisson there", LIMIT, async || {
        channels_on(to, &channel).await.len() == 1
    })
    .await;
    to.ask::<()>(&["PUBLISH", &channel, "0"]).await;
    woken(&mut again).await;

    let _outside = store.subscribe(&outside).await.unwrap();
    to.ask::<()>(&["DEL", &name]).await;
    let holder = attempt(name.as_str(), LockMode::Reentrant);
    assert!(asks(&store, &holder).await);
    let released = store.release(&holder.hold, None).await.unwrap();
    assert_eq!(released.notified, 1);
    store.withdraw(&first, false).await.unwrap();
}

#[tokio::test]
async fn a_key_that_is_on_its_way_is_asked_for_where_it_has_arrived() {
    let (cluster, store) = movers().await;
    let (name, slot) = on_first(cluster).await;
    let held = attempt(name.as_str(), LockMode::Reentrant);
    assert!(asks(&store, &held).await);
    cluster.begin_move(slot, 0, 1).await;
    assert_eq!(cluster.move_keys(slot, 0, 1).await, 1);

    let monitors = watch(cluster).await;
    let renewal = Renewal::new(held.hold.clone(), LEASE);
    assert_eq!(store.renew(&[renewal]).await.unwrap(), [HoldStatus::Held]);
    assert!(holds(&store, &held).await);
    let sent = sent(&monitors, &name).await;
    let asked = sent[1].iter().filter(|line| line.contains("EVALSHA"));
    assert_eq!(asked.count(), 2, "{sent:#?}");
    let asked = monitors[1].lines().await;
    assert!(asked.iter().any(|line| line.ends_with("\"ASKING\"")));

    cluster.end_move(slot, 0, 1).await;
    assert!(releases(&store, &held).await);
}

#[tokio::test]
async fn keys_that_are_being_moved_are_waited_for() {
    let (cluster, store) = movers().await;
    let (name, slot) = on_first(cluster).await;
    let locks = LockClient::new(store.clone());
    let guard = locks.lock(&name).await.unwrap();
    cluster.begin_move(slot, 0, 1).await;

    // The store tries again for a while, and then fails as transient, without effect.
    let other = attempt(name.as_str(), LockMode::Reentrant);
    assert_eq!(error_kind(&store, &other).await, StoreErrorKind::Transient);
    let rival = LockClient::new(super::store(cluster).await);
    let refused = rival.lock(&name).wait(Duration::ZERO).await.unwrap_err();
    let LockError::Unavailable(error) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(error.kind(), StoreErrorKind::Transient);

    // Waiting requests and releases try again until their own time-outs.
    let waiting = tokio::spawn(rival.lock(&name).wait(LIMIT).acquire());
    let releasing = tokio::spawn(guard.release());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished() && !releasing.is_finished());
    assert_eq!(cluster.move_keys(slot, 0, 1).await, 1);
    cluster.end_move(slot, 0, 1).await;
    releasing.await.unwrap().unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert!(!cluster.has(&name).await);
}

#[tokio::test]
async fn a_store_that_missed_two_moves_finds_the_slot_by_one_redirection() {
    let (cluster, store) = movers().await;
    let (name, slot) = on_first(cluster).await;
    let held = attempt(name.as_str(), LockMode::Fair);
    assert!(asks(&store, &held).await && releases(&store, &held).await);
    let other = super::store(cluster).await;
    cluster.move_slot(slot, 0, 1).await;
    cluster.move_slot(slot, 1, 2).await;
    let monitors = watch(cluster).await;
    assert!(asks(&store, &held).await);
    assert!(!asks(&other, &attempt(name.as_str(), LockMode::Fair)).await);
    assert!(releases(&store, &held).await);
    // Each store remembers the new owner after one redirection.
    let sent = sent(&monitors, &name).await;
    assert!(sent[0].len() <= 2, "{sent:#?}");
}

/// L6. The renewals of holds in one slot are one script, and no server runs it while it has some of the keys only.
#[tokio::test]
async fn holds_of_one_slot_are_renewed_while_its_keys_are_being_moved() {
    let (cluster, store) = movers().await;
    let (name, slot) = on_first(cluster).await;
    let held = ["a", "b"].map(|part| attempt(format!("{{{name}}}{part}"), LockMode::Reentrant));
    for attempt in &held {
        assert!(asks(&store, attempt).await);
    }
    cluster.begin_move(slot, 0, 1).await;
    cluster.move_key(held[0].hold.key.as_str(), 0, 1).await;

    let renewals = held
        .each_ref()
        .map(|one| Renewal::new(one.hold.clone(), LEASE));
    assert_eq!(store.renew(&renewals).await.unwrap(), [HoldStatus::Held; 2]);

    assert_eq!(cluster.move_keys(slot, 0, 1).await, 1);
    cluster.end_move(slot, 0, 1).await;
    for attempt in &held {
        assert!(releases(&store, attempt).await);
    }
}

/// Each of these renewals needs two keys, of which one has moved.
#[tokio::test]
async fn renewals_that_no_server_can_make_one_by_one_fail_with_the_reason() {
    let (cluster, store) = movers().await;
    let (name, slot) = on_first(cluster).await;
    let held = ["a", "b"].map(|part| attempt(format!("{{{name}}}{part}"), LockMode::Read));
    for attempt in &held {
        assert!(asks(&store, attempt).await);
    }
    cluster.begin_move(slot, 0, 1).await;
    for attempt in &held {
        cluster.move_key(attempt.hold.key.as_str(), 0, 1).await;
    }
    let renewals = held
        .each_ref()
        .map(|one| Renewal::new(one.hold.clone(), LEASE));
    let failed = store.renew(&renewals).await.unwrap_err();
    assert_eq!(failed.kind(), StoreErrorKind::Transient, "{failed:?}");

    cluster.move_keys(slot, 0, 1).await;
    cluster.end_move(slot, 0, 1).await;
    for attempt in &held {
        assert!(releases(&store, attempt).await);
    }
}

/// The other slots of its server are not affected.
#[tokio::test]
async fn only_the_holds_of_a_slot_that_is_half_way_are_unknown() {
    let (cluster, store) = movers().await;
    let beginning = beginning();
    let moving = cluster.name_on(0, &format!("{beginning}m-")).await;
    let staying = cluster.name_on(0, &format!("{beginning}s-")).await;
    let slot = cluster.slot(&moving).await;
    assert_ne!(slot, cluster.slot(&staying).await);
    let reader = attempt(moving.as_str(), LockMode::Read);
    let writer = attempt(staying.as_str(), LockMode::Write);
    assert!(asks(&store, &reader).await && asks(&store, &writer).await);
    cluster.begin_move(slot, 0, 1).await;
    cluster.move_key(&moving, 0, 1).await;
    let renewals = [&reader, &writer].map(|one| Renewal::new(one.hold.clone(), LEASE));
    let renewed = store.renew(&renewals).await.expect("one server answers");
    assert_eq!(renewed, [HoldStatus::Unknown, HoldStatus::Held]);
}

/// The script would find the lock and not its line, or no tombstone of an attempt that was withdrawn.
#[tokio::test]
async fn no_question_is_answered_from_one_half_of_a_slot() {
    let (cluster, store) = movers().await;
    let of = |kind: &str, name: &str| format!("tower_lock_{kind}:{{{name}}}");
    for (mode, apart) in [
        (LockMode::Reentrant, "line"),
        (LockMode::Write, "line"),
        (LockMode::permits(1), "line"),
        (LockMode::Fair, "alive"),
    ] {
        let (name, slot) = on_first(cluster).await;
        let holder = attempt(name.as_str(), mode);
        let waiter = patient(name.as_str(), mode).in_line(true);
        assert!(asks(&store, &holder).await && !asks(&store, &waiter).await);
        cluster.begin_move(slot, 0, 1).await;
        cluster.move_key(&of(apart, &name), 0, 1).await;
        for attempt in [&waiter, &attempt(name.as_str(), mode)] {
            let kind = error_kind(&store, attempt).await;
            assert_eq!(kind, StoreErrorKind::Transient, "{mode:?}");
        }
        cluster.move_keys(slot, 0, 1).await;
        cluster.end_move(slot, 0, 1).await;
        assert!(releases(&store, &holder).await && asks(&store, &waiter).await);
        assert!(releases(&store, &waiter).await);
    }
}

/// An operator would see holders without waiters, or end holds and wake none of them.
#[tokio::test]
async fn no_command_of_an_operator_acts_on_one_half_of_a_slot() {
    let (cluster, store) = movers().await;
    for mode in MODES.into_iter().chain([LockMode::permits(1)]) {
        for apart in ["line", "limit", "writers"] {
            let (name, slot) = on_first(cluster).await;
            let (holder, waiter) = (attempt(name.as_str(), mode), patient(name.as_str(), mode));
            let key = &holder.hold.key;
            assert!(asks(&store, &holder).await);
            store.acquire(&waiter).await.expect("an answer");
            let moved = format!("tower_lock_{apart}:{{{name}}}");
            let is_there: bool = cluster.nodes[0].ask(&["EXISTS", &moved]).await;
            cluster.begin_move(slot, 0, 1).await;
            if is_there {
                cluster.move_key(&moved, 0, 1).await;
            }
            let failed = [
                store.inspect(key).await.map(drop),
                store.force_unlock(key).await.map(drop),
                store.set_permits(key, NonZeroU32::new(2)).await,
            ];
            for failed in failed {
                let kind = failed.expect_err("half of it is elsewhere").kind();
                assert_eq!(kind, StoreErrorKind::Transient, "{mode:?} without {apart}");
            }
            cluster.move_keys(slot, 0, 1).await;
            cluster.end_move(slot, 0, 1).await;
            assert!(holds(&store, &holder).await, "{mode:?} without {apart}");
            assert!(store.force_unlock(key).await.expect("it has moved"));
            store.withdraw(&waiter, false).await.expect("it waited");
        }
    }
}
