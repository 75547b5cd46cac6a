//! Processes that wait for an exclusive hold form a line, and a release wakes the first of them.

use std::collections::VecDeque;

use super::*;

pub use super::order::a_cancelled_waiter_loses_its_place as a_cancelled_waiter_in_line_loses_its_place;
pub use super::order::a_frozen_waiter_delays_the_queue_by_seconds as a_frozen_waiter_in_line_loses_its_place;

pub async fn processes_are_granted_in_order(env: &Harness) {
    let holder = env.here.request().await.unwrap();
    let waiting = join_all((0..8).map(|_| env.process())).await;
    order::in_order(env, holder, &Vec::from_iter(&waiting)).await;
}

/// The first in line is slow to take the free lock.
pub async fn a_newcomer_does_not_overtake_the_line(env: &Harness) {
    let holder = env.here.request().await.unwrap();
    let slow = env.frozen().await;
    holder.release().await.unwrap();
    let newcomer = env.waits(env.elsewhere.request()).await;
    newcomer.keeps_waiting(env).await;
    let first = slow.thaw().granted().await;
    newcomer.keeps_waiting(env).await;
    first.release().await.unwrap();
    newcomer.serve_promptly().await;
}

pub async fn a_release_wakes_only_the_first_in_line(env: &Harness) {
    let holder = env.here.request().await.unwrap();
    each_release_wakes_the_first(env, [holder], env.mode).await;
}

/// Each release goes to the process that has waited for the longest time, and wakes no other. The oldest holder releases.
pub(super) async fn each_release_wakes_the_first(
    env: &Harness,
    holders: impl Into<VecDeque<LockGuard>>,
    mode: LockMode,
) {
    const WAITERS: usize = 8;
    let mut holders = holders.into();
    let mut waiters = Vec::new();
    for _ in 0..WAITERS {
        waiters.push(env.waiter(mode).await);
    }
    let (began, refused) = (Instant::now(), env.asked().refused.len());
    for waiter in waiters {
        holders.pop_front().unwrap().release().await.unwrap();
        holders.push_back(waiter.promptly().await);
    }
    // If each release woke all of them, half of all questions would be refused. Each process also asks when it listens, and
    // once a second.
    let vain = env.asked().refused.len() - refused;
    let polls = WAITERS * began.elapsed().as_secs() as usize;
    assert!(vain < WAITERS * 2 + polls, "{vain} questions in vain");
    release_all(holders).await;
}

/// Three processes ask for the lock continuously, two of them with one task each. No request of such a task waits in its process
/// behind another one, so only the store knows that others wait. A turn of the third process is up to 64 sections long.
pub async fn a_lone_task_in_a_loop_gets_its_turns(env: &Harness) {
    // Several turns of each.
    const GRANTS: usize = 480;
    let least = least_share(env, [1, 1, 4], GRANTS).await;
    assert!(least >= GRANTS / 96, "{least} of {GRANTS}");
}
