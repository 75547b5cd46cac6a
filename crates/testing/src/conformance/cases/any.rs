//! One of several keys: promise S8.

use std::collections::BTreeSet;

use super::*;

pub async fn a_request_for_any_gets_a_free_key(env: &Harness) {
    let processes = env.both().into_iter().cycle().take(5);
    let asking = processes.map(|process| {
        let segments = (0..5).map(|n| format!("segment:{n}"));
        process.any(segments).wait(Duration::ZERO)
    });
    let guards = acquire_all(asking).await;
    let keys: BTreeSet<_> = guards.iter().map(LockGuard::key).collect();
    // Readers may share a segment.
    assert!(keys.len() == 5 || env.mode == LockMode::Read);
    release_all(guards).await;
}

/// The release is noticed, whichever process holds the segment. In the fair mode a store may wake only the first of its
/// queue, in which a request for any of several has no place; then a poll notices it.
pub async fn a_request_for_any_gets_a_key_that_becomes_free(env: &Harness) {
    let [here, elsewhere] = env.both();
    let notice = match env.mode {
        LockMode::Fair => env.prompt() + Duration::from_secs(5),
        _ => env.prompt(),
    };
    for holders in [[here, here], [here, elsewhere], [elsewhere, elsewhere]] {
        for freed in [0, 1] {
            let holding = holders.into_iter().zip(["one", "two"]);
            let holding = holding.map(|(process, key)| process.rival_on(key));
            let mut holding = acquire_all(holding).await;
            let waiter = env.waits_a_moment(here.any(["one", "two"])).await;
            let freed = holding.swap_remove(freed);
            let key = freed.key().clone();
            freed.release().await.unwrap();
            let taken = timeout(notice, waiter.granted()).await;
            let taken = taken.expect("the release is noticed");
            assert_eq!(*taken.key(), key);
            taken.release().await.unwrap();
        }
    }
}

/// A request for any of several does not delay requests for one of them.
pub async fn a_cancelled_request_for_any_passes_its_turn_on(env: &Harness) {
    let holder = env.here.rival().await.unwrap();
    let any = env.here.any([KEY, "other"]);
    let other = any.clone().wait(Duration::ZERO).await.unwrap();
    let waiter = env.waits(env.here.request()).await;
    // A reader may be granted.
    let any = tokio::spawn(any.into_future());
    sleep(env.moment).await;
    any.abort();
    drop(any.await);
    holder.release().await.unwrap();
    waiter.serve_promptly().await;
    other.release().await.unwrap();
}

pub async fn the_number_of_waiters_for_any_is_bounded(env: &Harness) {
    let holders = acquire_all([KEY, "other"].map(|key| env.elsewhere.rival_on(key))).await;
    let asking = env.here.any([KEY, "other"]).max_waiters(2);
    let waiters = until_overloaded(env, &asking, Environment::waits_a_moment).await;
    // A waiter for one of the keys also counts against the limit.
    assert_err!(env.here.request().max_waiters(2).await, Overloaded);
    release_all(holders).await;
    join_all(waiters.into_iter().map(Waiter::serve)).await;
}

/// One release causes one question, and one more of the next in the queue.
pub async fn few_requests_for_any_ask_at_each_release(env: &Harness) {
    const CROWD: usize = 12;
    let holders = acquire_all(["one", "two"].map(|key| env.elsewhere.rival_on(key))).await;
    let asking = vec![env.here.any(["one", "two"]); CROWD];
    let asked = asked_at_a_release(env, holders, asking).await;
    assert!(asked <= CROWD / 2, "{asked} questions");
}
