//! Several keys at once: promise S8.

use std::time::Duration;

use crate::{LockError, LockMode, Owner};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::env::Env;
use super::site::Site;
use super::{KEY, rival};

pub async fn opposite_orders_do_not_deadlock(env: &Env, mode: LockMode) {
    const ORDERS: [[&str; 3]; 4] = [
        ["a", "b", "c"],
        ["c", "b", "a"],
        ["b", "c", "a"],
        ["c", "a", "c"],
    ];
    let sites = [Site::default(), Site::default(), Site::default()];
    let mut working = JoinSet::new();
    for locks in [env.client().await, env.client().await] {
        for (n, keys) in ORDERS.into_iter().enumerate() {
            let (locks, sites) = (locks.clone(), sites.clone());
            let mode = env.family(mode)[n % 2];
            working.spawn(async move {
                for _ in 0..5 {
                    let guard = locks.lock_all(keys).mode(mode).await.unwrap();
                    let work = Duration::from_millis(1);
                    let [a, b, c] = &sites;
                    if keys.contains(&"b") {
                        tokio::join!(a.work(mode, work), b.work(mode, work), c.work(mode, work));
                    } else {
                        tokio::join!(a.work(mode, work), c.work(mode, work));
                    }
                    guard.release().await.unwrap();
                }
            });
        }
    }
    let all = timeout(env.prompt() * 20, working.join_all()).await;
    all.expect("no request waits in a circle");
}

pub async fn no_part_is_kept_when_the_rest_is_taken(env: &Env, mode: LockMode) {
    let locks = env.client().await;
    let keys = ["a", "b", "c"];
    for holder in [&locks, &env.client().await] {
        let taken = holder.lock("b").mode(rival(mode)).await.unwrap();
        for wait in [Duration::ZERO, env.moment() * 5] {
            let asked = Instant::now();
            let refused = locks.lock_all(keys).mode(mode).wait(wait).await;
            assert!(
                matches!(refused, Err(LockError::Busy { .. })),
                "{refused:?}"
            );
            assert!(wait <= asked.elapsed() && asked.elapsed() < wait + env.prompt());
            for key in ["a", "c"] {
                let free = env.client().await.lock(key).mode(rival(mode));
                free.wait(env.prompt())
                    .await
                    .unwrap()
                    .release()
                    .await
                    .unwrap();
            }
        }
        let waiting = locks.lock_all(keys).mode(mode);
        let waiter = tokio::spawn(waiting.into_future());
        tokio::time::sleep(env.moment()).await;
        assert!(!waiter.is_finished());
        taken.release().await.unwrap();
        let guard = timeout(env.prompt(), waiter)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(guard.keys().count(), 3);
        guard.release().await.unwrap();
    }
}

pub async fn a_key_named_twice_is_taken_once(env: &Env, mode: LockMode) {
    let locks = env.client().await;
    let guard = locks.lock_all(["b", "a", "b", "a"]).mode(mode);
    let guard = guard.wait(Duration::ZERO).await.unwrap();
    assert_eq!(
        Vec::from_iter(guard.keys().map(|key| key.as_str())),
        ["a", "b"]
    );
    guard.release().await.unwrap();

    let [one, other] = env.family(mode);
    let both = locks.lock_all([(KEY, one), (KEY, other), (KEY, one)]);
    let guard = both.wait(Duration::ZERO).await.unwrap();
    assert_ne!(guard.mode(), LockMode::Read);
    guard.release().await.unwrap();
}

/// Each key is held in its own mode.
pub async fn each_key_is_taken_in_its_own_mode(env: &Env, mode: LockMode) {
    let locks = env.client().await;
    let mixed = locks
        .lock_all([("own", mode), (KEY, rival(mode))])
        .await
        .unwrap();
    let stranger = env.client().await;
    for (key, mode) in [("own", mode), (KEY, rival(mode))] {
        let same = stranger.lock(key).mode(mode).wait(Duration::ZERO).await;
        assert_eq!(same.is_ok(), mode == LockMode::Read);
        let rival = stranger
            .lock(key)
            .mode(rival(mode))
            .wait(Duration::ZERO)
            .await;
        assert!(rival.is_err());
    }
    mixed.release().await.unwrap();
}

pub async fn an_owner_of_one_key_is_granted_all(env: &Env, mode: LockMode) {
    let locks = env.client().await;
    let owner = Owner::new();
    let one = locks.lock("b").mode(mode).owner(&owner).await.unwrap();
    let all = locks.lock_all(["a", "b", "c"]).mode(mode).owner(&owner);
    let all = all.wait(env.prompt()).await.unwrap();
    one.release().await.unwrap();
    let refused = env
        .client()
        .await
        .lock("b")
        .mode(rival(mode))
        .wait(Duration::ZERO)
        .await;
    assert!(refused.is_err());
    all.release().await.unwrap();
}

pub async fn a_lost_key_among_several_is_reported_lost(env: &Env, mode: LockMode) {
    let locks = env.client().await;
    for key_first in [true, false] {
        let other = if key_first { "z" } else { "a" };
        let guard = locks.lock_all([KEY, other]).mode(mode).await.unwrap();
        env.steal().await;
        assert!(matches!(guard.release().await, Err(LockError::Lost)));
    }
}

pub async fn a_cancelled_request_for_several_leaves_nothing(env: &Env, mode: LockMode) {
    let locks = env.client().await;
    for taken in [None, Some("a"), Some("b"), Some("c")] {
        for micros in (0..4000).step_by(500) {
            let taken = match taken {
                Some(key) => Some(env.held_elsewhere(key, rival(mode)).await),
                None => None,
            };
            let asking = locks.lock_all(["a", "b", "c"]).mode(mode);
            let asking = timeout(Duration::from_micros(micros), asking.into_future());
            drop(asking.await);
            drop(taken);
            env.until("no key is in use", async || locks.keys_in_use() == 0)
                .await;
            env.store_is_empty().await;
        }
    }
}

/// A request that waits for a key in use must not block a free key.
pub async fn a_free_key_stays_free_while_another_is_waited_for(env: &Env, mode: LockMode) {
    for free in ["a", "z"] {
        let holder = env.held_elsewhere(KEY, rival(mode)).await;
        let locks = env.client().await;
        let all = locks.lock_all([KEY, free, "m"]).mode(mode);
        let waiter = tokio::spawn(all.into_future());
        tokio::time::sleep(env.moment()).await;
        for victim in [&locks, &env.client().await] {
            for key in [free, "m"] {
                let taken = victim.lock(key).mode(rival(mode)).wait(env.prompt());
                taken.await.unwrap().release().await.unwrap();
            }
        }
        holder.release().await.unwrap();
        let guard = timeout(env.prompt(), waiter).await.unwrap();
        guard.unwrap().unwrap().release().await.unwrap();
    }
}

/// Requests for the same two keys, which are always in use by one of them.
pub async fn a_request_for_all_is_granted_under_contention(env: &Env, mode: LockMode) {
    let clients = [env.client().await, env.client().await];
    let stop = Instant::now() + env.moment() * 100;
    let mut working = JoinSet::new();
    for (n, key) in ["a", "b", "a", "b"].into_iter().enumerate() {
        let (locks, moment) = (clients[n % 2].clone(), env.moment());
        working.spawn(async move {
            while Instant::now() < stop {
                let guard = locks.lock(key).mode(mode).await.unwrap();
                tokio::time::sleep(moment / 4).await;
                guard.release().await.unwrap();
            }
        });
    }
    tokio::time::sleep(env.moment()).await;
    let both = clients[0].lock_all(["a", "b"]).mode(rival(mode));
    both.await.unwrap().release().await.unwrap();
    assert!(
        Instant::now() < stop,
        "it had to wait until no other request came"
    );
    working.join_all().await;
}

pub async fn the_number_of_keys_of_a_request_is_bounded(env: &Env, mode: LockMode) {
    let locks = env
        .client_with(|builder| builder.max_keys_per_request(3))
        .await;
    let keys = |count| (0..count).map(|n| format!("key:{n}"));
    for refused in [
        locks.lock_all(keys(4)).mode(mode).await,
        locks.lock_any(keys(4)).mode(mode).await,
    ] {
        assert!(matches!(refused, Err(LockError::Invalid(_))), "{refused:?}");
    }
    assert_eq!(env.calls().questions(), 0);
    let guard = locks.lock_all(keys(3)).mode(mode).await.unwrap();
    guard.release().await.unwrap();
}
