//! Requests that are dropped before they are granted: promise L7.

use std::future::poll_fn;
use std::task::Poll;

use super::*;

/// More polls than any request of these cases needs until it is granted or sleeps.
const POLLS: usize = 10;

pub async fn a_cancelled_request_for_a_free_lock_leaves_nothing(env: &Env, mode: LockMode) {
    let locks = env.client().await;
    for polls in 0..=POLLS {
        for rest in [Duration::ZERO, env.moment] {
            cancel_after(polls, rest, locks.lock(KEY).mode(mode)).await;
            env.no_key_is_in_use(&locks).await;
            env.store_is_empty().await;
        }
    }
}

pub async fn a_cancelled_request_for_a_taken_lock_leaves_nothing(env: &Env, mode: LockMode) {
    let here = env.client().await;
    for holder in [&here, &env.client().await] {
        for polls in 0..=POLLS {
            for rest in [Duration::ZERO, env.moment] {
                let guard = holder.lock(KEY).mode(rival(mode)).await.unwrap();
                cancel_after(polls, rest, here.lock(KEY).mode(mode)).await;
                guard.release().await.unwrap();
                env.store_is_empty().await;
            }
        }
    }
}

/// The lock becomes free at the moment when its only waiter is dropped.
pub async fn a_request_cancelled_as_the_lock_becomes_free_leaves_it_free(
    env: &Env,
    mode: LockMode,
) {
    let (here, next) = (env.client().await, env.client().await);
    for holder in [&here, &env.client().await] {
        for polls in 0..=POLLS {
            let guard = holder.lock(KEY).mode(rival(mode)).await.unwrap();
            let waiter = Waiter::queue(env, here.lock(KEY).mode(mode)).await;
            guard.release().await.unwrap();
            for _ in 0..polls {
                yield_now().await;
            }
            waiter.cancel_or_release().await;
            granted_within(env.prompt(), next.lock(KEY).mode(rival(mode))).await;
            env.store_is_empty().await;
        }
    }
}

pub async fn a_cancelled_waiter_does_not_end_the_waits_of_others(env: &Env, mode: LockMode) {
    let (locks, guard) = env.held_here(rival(mode)).await;
    let [one, two, three] = Waiter::three(env, locks.lock(KEY).mode(mode)).await;
    two.cancel().await;
    guard.release().await.unwrap();
    one.promptly().await.release().await.unwrap();
    three.promptly().await.release().await.unwrap();
}

/// The first request of the queue asks the store for all of them.
pub async fn the_next_waiter_asks_when_the_first_is_cancelled(env: &Env, mode: LockMode) {
    let guard = env.held_elsewhere(KEY, rival(mode)).await;
    let locks = env.client().await;
    let [one, two, three] = Waiter::three(env, locks.lock(KEY).mode(mode)).await;
    one.cancel().await;
    two.keeps_waiting(env).await;
    two.cancel().await;
    guard.release().await.unwrap();
    three.promptly().await.release().await.unwrap();
}

/// Waiters get the hold, or the turn to ask for it, and are dropped before they are polled.
pub async fn a_waiter_cancelled_with_its_turn_passes_it_on(env: &Env, mode: LockMode) {
    let (locks, guard) = env.held_here(mode).await;
    let mut one = locks.lock(KEY).mode(rival(mode)).into_future();
    let mut two = locks.lock(KEY).mode(rival(mode)).into_future();
    for request in [&mut one, &mut two] {
        let first = poll_fn(|context| Poll::Ready(request.as_mut().poll(context))).await;
        assert!(first.is_pending());
    }
    let three = Waiter::queue(env, locks.lock(KEY).mode(rival(mode))).await;
    guard.release().await.unwrap();
    drop(one);
    drop(two);
    three.promptly().await.release().await.unwrap();
}

/// Polls the request `polls` times, lets other tasks run for `rest`, and drops the request or its guard.
async fn cancel_after(polls: usize, rest: Duration, request: LockRequest) {
    let mut acquiring = request.into_future();
    let mut left = polls;
    let granted = poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        let granted = acquiring.as_mut().poll(context).map(Some);
        if granted.is_pending() && left == 0 {
            return Poll::Ready(None);
        }
        granted
    });
    // A request that sleeps is not polled again, so it is cancelled at its last poll.
    let granted = timeout(rest.max(Duration::from_millis(5)), granted).await;
    sleep(rest).await;
    drop(granted);
}
