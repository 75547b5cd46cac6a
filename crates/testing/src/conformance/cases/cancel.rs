//! Requests that are dropped before they are granted: promise L7.

use std::future::poll_fn;
use std::task::Poll;

use super::*;

/// More polls than any request of these cases needs until it is granted or sleeps.
const POLLS: usize = 10;

pub async fn a_cancelled_request_for_a_free_lock_leaves_nothing(env: &Harness) {
    for (polls, rest) in moments(env) {
        cancel_after(polls, rest, env.here.request()).await;
        env.no_key_is_in_use(&env.here).await;
        env.store_is_empty().await;
    }
}

pub async fn a_cancelled_request_for_a_taken_lock_leaves_nothing(env: &Harness) {
    for holder in env.both() {
        for (polls, rest) in moments(env) {
            let guard = holder.rival().await.unwrap();
            cancel_after(polls, rest, env.here.request()).await;
            guard.release().await.unwrap();
            env.store_is_empty().await;
        }
    }
}

/// The lock becomes free at the moment when its only waiter is dropped.
pub async fn a_request_cancelled_as_the_lock_becomes_free_leaves_it_free(env: &Harness) {
    let next = env.process().await;
    for holder in env.both() {
        for polls in 0..=POLLS {
            let guard = holder.rival().await.unwrap();
            let waiter = env.waits(env.here.request()).await;
            guard.release().await.unwrap();
            for _ in 0..polls {
                yield_now().await;
            }
            waiter.cancel_or_release().await;
            granted_within(env.prompt(), next.rival()).await;
            env.store_is_empty().await;
        }
    }
}

pub async fn a_cancelled_waiter_does_not_end_the_waits_of_others(env: &Harness) {
    let holder = env.here.rival().await.unwrap();
    let [one, two, three] = env.three_wait(env.here.request()).await;
    two.cancel().await;
    holder.release().await.unwrap();
    one.serve_promptly().await;
    three.serve_promptly().await;
}

/// The first request of the queue asks the store for all of them.
pub async fn the_next_waiter_asks_when_the_first_is_cancelled(env: &Harness) {
    let holder = env.elsewhere.rival().await.unwrap();
    let [one, two, three] = env.three_wait(env.here.request()).await;
    one.cancel().await;
    two.keeps_waiting(env).await;
    two.cancel().await;
    holder.release().await.unwrap();
    three.serve_promptly().await;
}

/// Waiters get the hold, or the turn to ask for it, and are dropped before they are polled.
pub async fn a_waiter_cancelled_with_its_turn_passes_it_on(env: &Harness) {
    let holder = env.here.request().await.unwrap();
    let mut waiting = [env.here.rival(), env.here.rival()].map(LockRequest::into_future);
    for request in &mut waiting {
        let first = poll_fn(|context| Poll::Ready(request.as_mut().poll(context))).await;
        assert!(first.is_pending());
    }
    let last = env.waits(env.here.rival()).await;
    holder.release().await.unwrap();
    drop(waiting);
    last.serve_promptly().await;
}

/// When a request is cancelled: after how many polls, and how long after the last one.
fn moments(env: &Harness) -> impl Iterator<Item = (usize, Duration)> {
    let rests = [Duration::ZERO, env.moment];
    (0..=POLLS).flat_map(move |polls| rests.map(|rest| (polls, rest)))
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
        match acquiring.as_mut().poll(context) {
            Poll::Pending if left == 0 => Poll::Ready(None),
            polled => polled.map(Some),
        }
    });
    // A request that sleeps is not polled again, so it is cancelled at its last poll.
    let granted = timeout(rest.max(Duration::from_millis(5)), granted).await;
    sleep(rest).await;
    drop(granted);
}
