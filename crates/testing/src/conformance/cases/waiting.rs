//! How long a wait lasts, and how many may wait: promise L4.

use super::*;

/// It also leaves nothing in the store that another request would wait for.
pub async fn a_request_that_does_not_wait_is_refused_at_once(env: &Harness) {
    both_are_refused_after(env, Duration::ZERO).await;
}

pub async fn a_wait_ends_at_its_time_limit(env: &Harness) {
    both_are_refused_after(env, env.moment * 5).await;
}

/// A request of the process that holds the lock, and one of another process.
async fn both_are_refused_after(env: &Harness, wait: Duration) {
    let holder = env.here.request().await.unwrap();
    for process in env.both() {
        is_refused_after(env, wait, process.rival()).await;
    }
    holder.release().await.unwrap();
    env.store_is_empty().await;
}

/// There is one time limit for the wait in the process and the wait in the store.
pub async fn a_wait_keeps_its_time_limit_at_the_front_of_the_queue(env: &Harness) {
    let holder = env.elsewhere.rival().await.unwrap();
    let wait = env.moment * 5;
    let asked = Instant::now();
    let front = env.waits(env.here.request()).await;
    let behind = env.waits(env.here.request().wait(wait)).await;
    sleep(wait / 2).await;
    front.cancel().await;
    assert_err!(behind.outcome().await, Busy);
    let waited = asked.elapsed();
    assert!(wait <= waited && waited < wait + env.prompt());
    holder.release().await.unwrap();
}

pub async fn retry_after_is_about_the_rest_of_the_lease(env: &Harness) {
    let lease = Duration::from_secs(30);
    let holder = env.here.request().await.unwrap();
    for process in env.both() {
        let hint = match process.rival().wait(Duration::ZERO).await {
            Err(LockError::Busy { retry_after }) => retry_after.expect("a hint"),
            other => panic!("{other:?}"),
        };
        assert!(lease / 2 < hint && hint <= lease, "{hint:?}");
    }
    holder.release().await.unwrap();
}

pub async fn the_number_of_waiters_is_bounded(env: &Harness) {
    let holder = env.here.rival().await.unwrap();
    let asking = env.here.request().max_waiters(2);
    let mut waiters = until_overloaded(env, &asking, Environment::waits).await;
    // A request that does not wait does not count against the limit.
    is_refused(asking.clone()).await;

    waiters.pop().unwrap().cancel().await;
    waiters.push(env.waits(asking).await);
    holder.release().await.unwrap();
    for waiter in waiters {
        waiter.serve().await;
    }
}

pub async fn a_wait_for_ever_does_not_overflow(env: &Harness) {
    let holder = env.here.rival().await.unwrap();
    let asking = env.here.request().wait(Duration::MAX);
    let waiter = env.waits(asking.max_hold(Duration::MAX)).await;
    holder.release().await.unwrap();
    waiter.serve_promptly().await;
}

pub async fn the_number_of_keys_in_use_is_bounded(env: &Harness) {
    let process = env.process_with(|builder| builder.max_keys(3)).await;
    let one = process.on("one").await.unwrap();
    let two = process.all(["two", "three"]).await.unwrap();
    assert_err!(process.request().await, Overloaded);
    assert_err!(process.all([KEY, "one"]).await, Overloaded);
    // A request may wait for a key that is in use.
    let waiter = env.waits(process.rival_on("one")).await;
    two.release().await.unwrap();
    let two_are_free = async || process.keys_in_use() == 1;
    env.until("two keys are free", two_are_free).await;
    let all = process.all([KEY, "two"]).await.unwrap();
    one.release().await.unwrap();
    waiter.serve().await;
    all.release().await.unwrap();
}
