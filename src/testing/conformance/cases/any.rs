//! One of several keys: promise S8.

use super::*;

pub async fn a_request_for_any_gets_a_free_key(env: &Env, mode: LockMode) {
    let (here, elsewhere) = (env.client().await, env.client().await);
    let segments = || (0..5).map(|n| format!("segment:{n}"));
    let clients = [&here, &elsewhere].into_iter().cycle().take(5);
    let asking = clients.map(|locks| locks.lock_any(segments()).mode(mode).wait(Duration::ZERO));
    let guards = acquire_all(asking).await;
    let mut keys: Vec<_> = guards.iter().map(|guard| guard.key().clone()).collect();
    keys.sort();
    keys.dedup();
    // Readers may share a segment.
    assert!(keys.len() == 5 || mode == LockMode::Read);
    release_all(guards).await;
}

/// The release is noticed, whichever process holds the segment. In the fair mode a store may wake only the first of its
/// queue, in which a request for any of several has no place; then a poll notices it.
pub async fn a_request_for_any_gets_a_key_that_becomes_free(env: &Env, mode: LockMode) {
    let (here, elsewhere) = (env.client().await, env.client().await);
    let notice = match mode {
        LockMode::Fair => env.prompt() + Duration::from_secs(5),
        _ => env.prompt(),
    };
    for holders in [
        [&here, &here],
        [&here, &elsewhere],
        [&elsewhere, &elsewhere],
    ] {
        for freed in [0, 1] {
            let holding = holders.into_iter().zip(["one", "two"]);
            let holding = holding.map(|(locks, key)| locks.lock(key).mode(rival(mode)));
            let mut guards = acquire_all(holding).await;
            let waiter = Waiter::begin(env, here.lock_any(["one", "two"]).mode(mode)).await;
            let key = guards[freed].key().clone();
            guards.swap_remove(freed).release().await.unwrap();
            let taken = timeout(notice, waiter.granted()).await;
            let taken = taken.expect("the release is noticed");
            assert_eq!(*taken.key(), key);
            taken.release().await.unwrap();
            drop(guards);
        }
    }
}

/// A request for any of several does not delay requests for one of them.
pub async fn a_cancelled_request_for_any_passes_its_turn_on(env: &Env, mode: LockMode) {
    let (locks, guard) = env.held_here(rival(mode)).await;
    let any = locks.lock_any([KEY, "other"]).mode(mode);
    let other = any.clone().wait(Duration::ZERO).await.unwrap();
    let waiter = Waiter::queue(env, locks.lock(KEY).mode(mode)).await;
    let any = tokio::spawn(any.into_future());
    sleep(env.moment).await;
    any.abort();
    drop(any.await);
    guard.release().await.unwrap();
    waiter.promptly().await.release().await.unwrap();
    other.release().await.unwrap();
}

pub async fn the_number_of_waiters_for_any_is_bounded(env: &Env, mode: LockMode) {
    let locks = env.client().await;
    let mut holders = Vec::new();
    for key in [KEY, "other"] {
        holders.push(env.held_elsewhere(key, rival(mode)).await);
    }
    let asking = locks.lock_any([KEY, "other"]).mode(mode).max_waiters(2);
    let waiters = until_overloaded(env, &asking, Waiter::begin).await;
    // A waiter for one of the keys also counts against the limit.
    assert_err!(locks.lock(KEY).mode(mode).max_waiters(2).await, Overloaded);
    release_all(holders).await;
    join_all(waiters.into_iter().map(Waiter::serve)).await;
}

/// One release causes one question, and one more of the next in the queue.
pub async fn few_requests_for_any_ask_at_each_release(env: &Env, mode: LockMode) {
    const CROWD: usize = 12;
    let (locks, elsewhere) = (env.client().await, env.client().await);
    let holding = ["one", "two"].map(|key| elsewhere.lock(key).mode(rival(mode)));
    let holders = acquire_all(holding).await;
    let asking = (0..CROWD).map(|_| locks.lock_any(["one", "two"]).mode(mode));
    let asked = asked_at_a_release(env, holders, asking).await;
    assert!(asked <= CROWD / 2, "{asked} questions");
}
