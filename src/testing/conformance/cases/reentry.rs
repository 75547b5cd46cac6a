//! Re-entry by owner.

use super::*;

pub async fn an_owner_reenters_without_asking_the_store(env: &Env, mode: LockMode) {
    let asking = env.owned(mode).await;
    let outer = asking.clone().await.unwrap();
    let questions = env.calls.questions();
    let inner = asking.clone().await.unwrap();
    let innermost = asking.wait(Duration::ZERO).await.unwrap();
    assert_eq!(env.calls.questions(), questions);
    drop((innermost, inner));
    outer.release().await.unwrap();
}

pub async fn the_drop_of_an_inner_guard_keeps_the_lock(env: &Env, mode: LockMode) {
    let asking = env.owned(mode).await;
    let outer = asking.clone().await.unwrap();
    drop(asking.clone().await.unwrap());
    asking.await.unwrap().release().await.unwrap();
    assert!(env.is_taken(rival(mode)).await);
    outer.release().await.unwrap();
    assert!(!env.is_taken(rival(mode)).await);
}

pub async fn the_drop_of_the_outer_guard_keeps_the_lock(env: &Env, mode: LockMode) {
    let asking = env.owned(mode).await;
    let outer = asking.clone().await.unwrap();
    let inner = asking.await.unwrap();
    drop(outer);
    assert!(env.is_taken(rival(mode)).await);
    inner.release().await.unwrap();
    assert!(!env.is_taken(rival(mode)).await);
}

/// Both requests of the owner are under way before either is granted.
pub async fn an_owner_that_asks_twice_at_once_is_granted_both(env: &Env, mode: LockMode) {
    let locks = env.client().await;
    let owner = Owner::new();
    let asking = locks.lock(KEY).mode(mode).owner(&owner);

    // An owner may also ask for both exclusive modes at once. A read and a write at once are another case.
    let second = match env.family(mode) {
        [one, other] if one.is_exclusive() => {
            asking.clone().mode(if mode == one { other } else { one })
        }
        _ => asking.clone(),
    };
    let (one, two) = tokio::join!(asking.clone().acquire(), second.clone().acquire());
    drop((one.unwrap(), two.unwrap()));

    let holder = env.held_elsewhere(KEY, rival(mode)).await;
    let one = Waiter::queue(env, asking.clone()).await;
    let two = Waiter::queue(env, second).await;
    holder.release().await.unwrap();
    let one = one.promptly().await;
    let two = two.promptly().await;
    one.release().await.unwrap();
    assert!(env.is_taken(rival(mode)).await);
    two.release().await.unwrap();
}

/// The next request asks the store in place of the cancelled one.
pub async fn a_cancelled_request_does_not_end_others_of_its_owner(env: &Env, mode: LockMode) {
    let asking = env.owned(mode).await;
    let holder = env.held_elsewhere(KEY, rival(mode)).await;
    let [one, two, three] = Waiter::three(env, asking).await;
    one.cancel().await;
    two.cancel().await;
    three.keeps_waiting(env).await;
    holder.release().await.unwrap();
    three.promptly().await.release().await.unwrap();
}

/// Until its guards are dropped, the owner gets the error that its hold is lost.
pub async fn an_owner_does_not_join_a_lost_hold(env: &Env, mode: LockMode) {
    let asking = env.owned(mode).await;
    let fixed = asking.clone().lease(Lease::Fixed(env.short_lease()));
    let guard = fixed.await.unwrap();
    guard.lost().await;
    assert_err!(asking.clone().await, Lost);
    drop(guard);
    asking.await.unwrap().release().await.unwrap();
}

/// A share without a longest hold has ended: the other shares keep their own limits.
pub async fn a_share_keeps_its_longest_hold_when_another_share_ends(env: &Env, mode: LockMode) {
    let asking = env.owned(mode).await;
    let asking = asking.lease(Lease::Renewed(env.short_lease()));
    let wedged = asking.clone().max_hold(env.short_lease()).await.unwrap();
    drop(asking.await.unwrap());
    let next = env.request(rival(mode)).await;
    let next = next.wait(env.short_lease() * 4).await.unwrap();
    assert!(wedged.is_lost());
    next.release().await.unwrap();
}

/// And not `Upgrade`, if it asks for another mode.
pub async fn an_owner_of_a_lost_hold_gets_lost_in_every_mode(env: &Env, mode: LockMode) {
    let locks = env.client().await;
    let owner = Owner::new();
    let fixed = locks.lock(KEY).mode(mode).owner(&owner);
    let guard = fixed.lease(Lease::Fixed(env.short_lease())).await.unwrap();
    guard.lost().await;
    for mode in env.family(mode) {
        for wait in [Duration::ZERO, env.prompt()] {
            let again = locks.lock(KEY).mode(mode).owner(&owner).wait(wait);
            assert_err!(again.await, Lost);
            let several = locks.lock_all([KEY, "other"]).mode(mode).owner(&owner);
            assert_err!(several.wait(wait).await, Lost);
        }
    }
    drop(guard);
}
