//! Several keys at once: promise S8.

use super::*;
use tower_distributed_lock::client::LockClientBuilder;

pub async fn opposite_orders_do_not_deadlock(env: &Harness) {
    const ORDERS: [[&str; 3]; 4] = [
        ["a", "b", "c"],
        ["c", "b", "a"],
        ["b", "c", "a"],
        ["c", "a", "c"],
    ];
    let sites = [
        CriticalSection::default(),
        CriticalSection::default(),
        CriticalSection::default(),
    ];
    let mut working = JoinSet::new();
    for process in env.both() {
        for (keys, mode) in ORDERS.into_iter().zip(env.family().into_iter().cycle()) {
            let (process, sites) = (process.clone(), sites.clone());
            working.spawn(async move {
                for _ in 0..5 {
                    let guard = process.lock_all(keys).mode(mode).await.unwrap();
                    let sites = ["a", "b", "c"].iter().zip(&sites);
                    let visited = sites.filter(|(key, _)| keys.contains(key));
                    let work = Duration::from_millis(1);
                    join_all(visited.map(|(_, site)| site.work(mode, work))).await;
                    guard.release().await.unwrap();
                }
            });
        }
    }
    let all = timeout(env.prompt() * 20, working.join_all()).await;
    all.expect("no request waits in a circle");
}

pub async fn no_part_is_kept_when_the_rest_is_taken(env: &Harness) {
    let free = env.process().await;
    let keys = ["a", "b", "c"];
    for holder in env.both() {
        let taken = holder.rival_on("b").await.unwrap();
        for wait in [Duration::ZERO, env.moment * 5] {
            is_refused_after(env, wait, env.here.all(keys)).await;
            for key in ["a", "c"] {
                granted_within(env.prompt(), free.rival_on(key)).await;
            }
        }
        let waiter = env.waits_a_moment(env.here.all(keys)).await;
        taken.release().await.unwrap();
        let guard = waiter.promptly().await;
        assert_eq!(guard.keys().count(), 3);
        guard.release().await.unwrap();
    }
}

pub async fn a_key_named_twice_is_taken_once(env: &Harness) {
    let guard = env.here.all(["b", "a", "b", "a"]).wait(Duration::ZERO);
    let guard = guard.await.unwrap();
    let keys = guard.keys().map(|key| key.as_str());
    assert_eq!(Vec::from_iter(keys), ["a", "b"]);
    guard.release().await.unwrap();

    let [one, other] = env.family();
    let both = env.here.lock_all([(KEY, one), (KEY, other), (KEY, one)]);
    let guard = both.wait(Duration::ZERO).await.unwrap();
    assert_ne!(guard.mode(), LockMode::Read);
    guard.release().await.unwrap();
}

/// Each key is held in its own mode.
pub async fn each_key_is_taken_in_its_own_mode(env: &Harness) {
    let keys = [("own", env.mode), (KEY, rival(env.mode))];
    let mixed = env.here.lock_all(keys).await.unwrap();
    for (key, mode) in keys {
        let asking = env.elsewhere.lock(key).wait(Duration::ZERO);
        let same = asking.clone().mode(mode).await;
        assert_eq!(same.is_ok(), mode == LockMode::Read);
        is_refused(asking.mode(rival(mode))).await;
    }
    mixed.release().await.unwrap();
}

pub async fn an_owner_of_one_key_is_granted_all(env: &Harness) {
    let owner = Owner::new();
    let one = env.here.on("b").owner(&owner).await.unwrap();
    let all = env.here.all(["a", "b", "c"]).owner(&owner);
    let all = all.wait(env.prompt()).await.unwrap();
    one.release().await.unwrap();
    is_refused(env.elsewhere.rival_on("b")).await;
    all.release().await.unwrap();
}

pub async fn a_lost_key_among_several_is_reported_lost(env: &Harness) {
    for other in ["z", "a"] {
        let guard = env.here.all([KEY, other]).await.unwrap();
        env.steal().await;
        assert_err!(guard.release().await, Lost);
    }
}

pub async fn a_cancelled_request_for_several_leaves_nothing(env: &Harness) {
    for taken in [None, Some("a"), Some("b"), Some("c")] {
        for micros in (0..4000).step_by(500) {
            let taken = acquire_all(taken.map(|key| env.elsewhere.rival_on(key))).await;
            let asking = env.here.all(["a", "b", "c"]).into_future();
            drop(timeout(Duration::from_micros(micros), asking).await);
            drop(taken);
            env.no_key_is_in_use(&env.here).await;
            env.store_is_empty().await;
        }
    }
}

/// A request that waits for a key in use must not block a free key.
pub async fn a_free_key_stays_free_while_another_is_waited_for(env: &Harness) {
    for free in ["a", "z"] {
        let holder = env.elsewhere.rival().await.unwrap();
        let waiter = env.waits_a_moment(env.here.all([KEY, free, "m"])).await;
        for victim in [&env.here, &env.process().await] {
            for key in [free, "m"] {
                granted_within(env.prompt(), victim.rival_on(key)).await;
            }
        }
        holder.release().await.unwrap();
        waiter.serve_promptly().await;
    }
}

/// A request whose other keys are in use in turns takes one key after the other at last, and waits for the next one while it holds
/// those before it: never for much longer than a second.
pub async fn a_key_is_not_held_for_long_while_another_is_waited_for(env: &Harness) {
    let mut holders = acquire_all(["b", "c"].map(|key| env.elsewhere.rival_on(key))).await;
    let waiter = env
        .waits_a_moment(env.here.all(["a", "b", "c"]).wait(Duration::from_secs(60)))
        .await;
    // More often than it gives its keys back before it waits for another.
    for key in ["b", "c"].into_iter().cycle().take(12) {
        holders.remove(0).release().await.unwrap();
        // It has the key, finds the other one in use, and gives it back.
        waiter.keeps_waiting(env).await;
        holders.push(env.elsewhere.rival_on(key).await.unwrap());
    }
    let victim = env.process().await;
    for _ in 0..4 {
        let limit = Duration::from_secs(1) + env.prompt();
        granted_within(limit, victim.rival_on("a")).await;
        sleep(env.moment).await;
    }
    drop(holders);
    waiter.serve().await;
}

/// Requests for the same two keys, which are always in use by one of them.
pub async fn a_request_for_all_is_granted_under_contention(env: &Harness) {
    let stop = Instant::now() + env.moment * 100;
    let mut working = JoinSet::new();
    for (process, key) in env.both().into_iter().zip(["a", "b"]).cycle().take(4) {
        let (process, work) = (process.clone(), env.moment / 4);
        working.spawn(async move {
            while Instant::now() < stop {
                let guard = process.on(key).await.unwrap();
                sleep(work).await;
                guard.release().await.unwrap();
            }
        });
    }
    sleep(env.moment).await;
    let both = env.here.all(["a", "b"]).mode(rival(env.mode));
    both.await.unwrap().release().await.unwrap();
    assert!(Instant::now() < stop, "granted when no other asked");
    working.join_all().await;
}

pub async fn the_number_of_keys_of_a_request_is_bounded(env: &Harness) {
    let bounded = |builder: LockClientBuilder| builder.max_keys_per_request(3);
    let process = env.process_with(bounded).await;
    let keys = |count| (0..count).map(|n| format!("key:{n}"));
    assert_err!(process.all(keys(4)).await, Invalid);
    assert_err!(process.any(keys(4)).await, Invalid);
    assert_eq!(env.asked().questions, 0);
    let guard = process.all(keys(3)).await.unwrap();
    guard.release().await.unwrap();
}
