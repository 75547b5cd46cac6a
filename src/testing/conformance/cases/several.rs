//! Several keys at once: promise S8.

use super::*;
use crate::LockClientBuilder;

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
        for wait in [Duration::ZERO, env.moment * 5] {
            let asked = Instant::now();
            assert_err!(locks.lock_all(keys).mode(mode).wait(wait).await, Busy);
            assert!(wait <= asked.elapsed() && asked.elapsed() < wait + env.prompt());
            for key in ["a", "c"] {
                let free = env.client().await.lock(key).mode(rival(mode));
                granted_within(env.prompt(), free).await;
            }
        }
        let waiter = Waiter::begin(env, locks.lock_all(keys).mode(mode)).await;
        taken.release().await.unwrap();
        let guard = waiter.promptly().await;
        assert_eq!(guard.keys().count(), 3);
        guard.release().await.unwrap();
    }
}

pub async fn a_key_named_twice_is_taken_once(env: &Env, mode: LockMode) {
    let locks = env.client().await;
    let guard = locks.lock_all(["b", "a", "b", "a"]).mode(mode);
    let guard = guard.wait(Duration::ZERO).await.unwrap();
    let keys = guard.keys().map(|key| key.as_str());
    assert_eq!(Vec::from_iter(keys), ["a", "b"]);
    guard.release().await.unwrap();

    let [one, other] = env.family(mode);
    let both = locks.lock_all([(KEY, one), (KEY, other), (KEY, one)]);
    let guard = both.wait(Duration::ZERO).await.unwrap();
    assert_ne!(guard.mode(), LockMode::Read);
    guard.release().await.unwrap();
}

/// Each key is held in its own mode.
pub async fn each_key_is_taken_in_its_own_mode(env: &Env, mode: LockMode) {
    let keys = [("own", mode), (KEY, rival(mode))];
    let mixed = env.client().await.lock_all(keys).await.unwrap();
    let stranger = env.client().await;
    for (key, mode) in keys {
        let asking = stranger.lock(key).wait(Duration::ZERO);
        let same = asking.clone().mode(mode).await;
        assert_eq!(same.is_ok(), mode == LockMode::Read);
        assert!(asking.mode(rival(mode)).await.is_err());
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
    let stranger = env.client().await.lock("b").mode(rival(mode));
    assert!(stranger.wait(Duration::ZERO).await.is_err());
    all.release().await.unwrap();
}

pub async fn a_lost_key_among_several_is_reported_lost(env: &Env, mode: LockMode) {
    let locks = env.client().await;
    for key_first in [true, false] {
        let other = if key_first { "z" } else { "a" };
        let guard = locks.lock_all([KEY, other]).mode(mode).await.unwrap();
        env.steal().await;
        assert_err!(guard.release().await, Lost);
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
            env.no_key_is_in_use(&locks).await;
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
        let waiter = Waiter::begin(env, all).await;
        for victim in [&locks, &env.client().await] {
            for key in [free, "m"] {
                granted_within(env.prompt(), victim.lock(key).mode(rival(mode))).await;
            }
        }
        holder.release().await.unwrap();
        waiter.promptly().await.release().await.unwrap();
    }
}

/// Requests for the same two keys, which are always in use by one of them.
pub async fn a_request_for_all_is_granted_under_contention(env: &Env, mode: LockMode) {
    let clients = [env.client().await, env.client().await];
    let stop = Instant::now() + env.moment * 100;
    let mut working = JoinSet::new();
    for (n, key) in ["a", "b", "a", "b"].into_iter().enumerate() {
        let (locks, moment) = (clients[n % 2].clone(), env.moment);
        working.spawn(async move {
            while Instant::now() < stop {
                let guard = locks.lock(key).mode(mode).await.unwrap();
                sleep(moment / 4).await;
                guard.release().await.unwrap();
            }
        });
    }
    sleep(env.moment).await;
    let both = clients[0].lock_all(["a", "b"]).mode(rival(mode));
    both.await.unwrap().release().await.unwrap();
    assert!(Instant::now() < stop, "granted when no other asked");
    working.join_all().await;
}

pub async fn the_number_of_keys_of_a_request_is_bounded(env: &Env, mode: LockMode) {
    let bounded = |builder: LockClientBuilder| builder.max_keys_per_request(3);
    let locks = env.client_with(bounded).await;
    let keys = |count| (0..count).map(|n| format!("key:{n}"));
    assert_err!(locks.lock_all(keys(4)).mode(mode).await, Invalid);
    assert_err!(locks.lock_any(keys(4)).mode(mode).await, Invalid);
    assert_eq!(env.calls.questions(), 0);
    let guard = locks.lock_all(keys(3)).mode(mode).await.unwrap();
    guard.release().await.unwrap();
}
