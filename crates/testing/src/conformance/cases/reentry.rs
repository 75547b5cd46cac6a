//! Re-entry by owner.

use super::*;

pub async fn an_owner_reenters_without_asking_the_store(env: &Harness) {
    let asking = env.here.owned();
    let outer = asking.clone().await.unwrap();
    let questions = env.asked().questions;
    let inner = asking.clone().await.unwrap();
    let innermost = asking.wait(Duration::ZERO).await.unwrap();
    assert_eq!(env.asked().questions, questions);
    drop((innermost, inner));
    outer.release().await.unwrap();
}

pub async fn the_drop_of_an_inner_guard_keeps_the_lock(env: &Harness) {
    let asking = env.here.owned();
    let outer = asking.clone().await.unwrap();
    drop(asking.clone().await.unwrap());
    asking.await.unwrap().release().await.unwrap();
    is_held_until_the_release(env, outer).await;
}

pub async fn the_drop_of_the_outer_guard_keeps_the_lock(env: &Harness) {
    let asking = env.here.owned();
    let outer = asking.clone().await.unwrap();
    let inner = asking.await.unwrap();
    drop(outer);
    is_held_until_the_release(env, inner).await;
}

async fn is_held_until_the_release(env: &Harness, guard: LockGuard) {
    assert!(env.is_taken().await);
    guard.release().await.unwrap();
    assert!(!env.is_taken().await);
}

/// Both requests of the owner are under way before either is granted.
pub async fn an_owner_that_asks_twice_at_once_is_granted_both(env: &Harness) {
    let asking = env.here.owned();
    // An owner may also ask for both exclusive modes at once. A read and a write at once are another case.
    let second = match env.family() {
        [one, other] if one.is_exclusive() => {
            asking
                .clone()
                .mode(if env.mode == one { other } else { one })
        }
        _ => asking.clone(),
    };
    let (one, two) = tokio::join!(asking.clone().acquire(), second.clone().acquire());
    drop((one.unwrap(), two.unwrap()));

    let holder = env.elsewhere.rival().await.unwrap();
    let one = env.waits(asking).await;
    let two = env.waits_a_moment(second).await;
    holder.release().await.unwrap();
    let one = one.promptly().await;
    let two = two.promptly().await;
    one.release().await.unwrap();
    is_held_until_the_release(env, two).await;
}

/// The next request asks the store in place of the cancelled one.
pub async fn a_cancelled_request_does_not_end_others_of_its_owner(env: &Harness) {
    let holder = env.elsewhere.rival().await.unwrap();
    let asking = env.here.owned();
    let one = env.waits(asking.clone()).await;
    let two = env.waits_a_moment(asking.clone()).await;
    let three = env.waits_a_moment(asking).await;
    one.cancel().await;
    two.cancel().await;
    three.keeps_waiting(env).await;
    holder.release().await.unwrap();
    three.serve_promptly().await;
}

/// Until its guards are dropped, the owner gets the error that its hold is lost.
pub async fn an_owner_does_not_join_a_lost_hold(env: &Harness) {
    let asking = env.here.owned();
    let guard = asking.clone().lease(env.fixed()).await.unwrap();
    guard.lost().await;
    assert_err!(asking.clone().await, Lost);
    drop(guard);
    asking.await.unwrap().release().await.unwrap();
}

/// The longest hold is that of the outer guard, also after its end.
pub async fn an_inner_guard_does_not_lengthen_the_longest_hold(env: &Harness) {
    let asking = env.here.owned().lease(env.renewed());
    let outer = asking.clone().max_hold(env.short_lease()).await.unwrap();
    let limit = Instant::now() + env.short_lease();
    let (ended, wedged) = (asking.clone().await.unwrap(), asking.await.unwrap());
    assert!(wedged.deadline() <= limit);
    drop((outer, ended));
    let next = env.elsewhere.rival().wait(env.short_lease() * 4);
    let next = next.await.unwrap();
    assert!(wedged.is_lost());
    assert_err!(wedged.release().await, Lost);
    next.release().await.unwrap();
}

pub async fn an_inner_guard_does_not_shorten_the_longest_hold(env: &Harness) {
    let asking = env.here.owned().lease(env.renewed());
    let outer = asking.clone().await.unwrap();
    let inner = asking.max_hold(env.short_lease() / 2).await.unwrap();
    let lost = timeout(env.short_lease() * 3 / 2, inner.lost()).await;
    assert!(lost.is_err() && !outer.is_lost());
    inner.release().await.unwrap();
    outer.release().await.unwrap();
}

/// And not `Upgrade`, if it asks for another mode.
pub async fn an_owner_of_a_lost_hold_gets_lost_in_every_mode(env: &Harness) {
    let owner = Owner::new();
    let fixed = env.here.request().owner(&owner).lease(env.fixed());
    let guard = fixed.await.unwrap();
    guard.lost().await;
    for mode in env.family() {
        for wait in [Duration::ZERO, env.prompt()] {
            for again in [env.here.lock(KEY), env.here.lock_all([KEY, "other"])] {
                assert_err!(again.mode(mode).owner(&owner).wait(wait).await, Lost);
            }
        }
    }
    drop(guard);
}
