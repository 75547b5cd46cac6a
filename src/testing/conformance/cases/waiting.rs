//! How long a wait lasts, and how many may wait: promise L4.

use super::*;

/// It also leaves nothing in the store that another request would wait for.
pub async fn a_request_that_does_not_wait_is_refused_at_once(env: &Env, mode: LockMode) {
    is_refused_after(env, mode, Duration::ZERO).await;
}

pub async fn a_wait_ends_at_its_time_limit(env: &Env, mode: LockMode) {
    is_refused_after(env, mode, env.moment * 5).await;
}

/// A request of the process that holds the lock, and one of another process.
async fn is_refused_after(env: &Env, mode: LockMode, wait: Duration) {
    let (locks, holder) = env.held_here(mode).await;
    for client in [&locks, &env.client().await] {
        let asked = Instant::now();
        assert_err!(client.lock(KEY).mode(rival(mode)).wait(wait).await, Busy);
        let waited = asked.elapsed();
        assert!(wait <= waited && waited < wait + env.prompt());
    }
    holder.release().await.unwrap();
    env.store_is_empty().await;
}

/// There is one time limit for the wait in the process and the wait in the store.
pub async fn a_wait_keeps_its_time_limit_at_the_front_of_the_queue(env: &Env, mode: LockMode) {
    let holder = env.held_elsewhere(KEY, rival(mode)).await;
    let locks = env.client().await;
    let wait = env.moment * 5;
    let asked = Instant::now();
    let front = Waiter::queue(env, locks.lock(KEY).mode(mode)).await;
    let behind = Waiter::queue(env, locks.lock(KEY).mode(mode).wait(wait)).await;
    sleep(wait / 2).await;
    front.cancel().await;
    assert_err!(behind.outcome().await, Busy);
    let waited = asked.elapsed();
    assert!(wait <= waited && waited < wait + env.prompt());
    holder.release().await.unwrap();
}

pub async fn retry_after_is_about_the_rest_of_the_lease(env: &Env, mode: LockMode) {
    let lease = Duration::from_secs(30);
    let (locks, holder) = env.held_here(mode).await;
    for client in [&locks, &env.client().await] {
        let asking = client.lock(KEY).mode(rival(mode)).wait(Duration::ZERO);
        let hint = match asking.await {
            Err(LockError::Busy { retry_after }) => retry_after.expect("a hint"),
            other => panic!("{other:?}"),
        };
        assert!(lease / 2 < hint && hint <= lease, "{hint:?}");
    }
    holder.release().await.unwrap();
}

pub async fn the_number_of_waiters_is_bounded(env: &Env, mode: LockMode) {
    let (locks, holder) = env.held_here(rival(mode)).await;
    let asking = locks.lock(KEY).mode(mode).max_waiters(2);
    let mut waiters = until_overloaded(env, &asking, Waiter::queue).await;
    // A request that does not wait does not count against the limit.
    assert_err!(asking.clone().wait(Duration::ZERO).await, Busy);

    waiters.pop().unwrap().cancel().await;
    waiters.push(Waiter::queue(env, asking).await);
    holder.release().await.unwrap();
    for waiter in waiters {
        waiter.granted().await.release().await.unwrap();
    }
}

pub async fn a_wait_for_ever_does_not_overflow(env: &Env, mode: LockMode) {
    let (locks, holder) = env.held_here(rival(mode)).await;
    let asking = locks.lock(KEY).mode(mode).wait(Duration::MAX);
    let waiter = Waiter::queue(env, asking.max_hold(Duration::MAX)).await;
    holder.release().await.unwrap();
    waiter.promptly().await.release().await.unwrap();
}

pub async fn the_number_of_keys_in_use_is_bounded(env: &Env, mode: LockMode) {
    let locks = env.client_with(|builder| builder.max_keys(3)).await;
    let one = locks.lock("one").mode(mode).await.unwrap();
    let two = locks.lock_all(["two", "three"]).mode(mode).await.unwrap();
    assert_err!(locks.lock(KEY).mode(mode).await, Overloaded);
    assert_err!(locks.lock_all([KEY, "one"]).mode(mode).await, Overloaded);
    // A request may wait for a key that is in use.
    let waiter = Waiter::queue(env, locks.lock("one").mode(rival(mode))).await;
    two.release().await.unwrap();
    let two_are_free = async || locks.keys_in_use() == 1;
    env.until("two keys are free", two_are_free).await;
    let all = locks.lock_all([KEY, "two"]).mode(mode).await.unwrap();
    one.release().await.unwrap();
    waiter.granted().await.release().await.unwrap();
    all.release().await.unwrap();
}
