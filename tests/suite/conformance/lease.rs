//! Leases: how long a hold lives. GUARANTEES S4, L1, L9.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tower_distributed_lock::{Lease, LockError, LockMode};

use super::env::Env;
use super::waiter::Waiter;
use super::{KEY, rival};

/// The holder knows before anybody else can have the lock.
pub(super) async fn a_fixed_lease_outlives_its_time(env: &Env, mode: LockMode) {
    let lease = env.short_lease();
    let asked = Instant::now();
    let asking = env.client().await.lock(KEY).mode(mode);
    let guard = asking.lease(Lease::Fixed(lease)).await.unwrap();
    assert!(guard.deadline() <= asked + lease + env.moment());
    assert!(!guard.is_lost());
    let next = Waiter::queue(env, env.client().await.lock(KEY).mode(rival(mode))).await;
    guard.lost().await;
    assert!(guard.is_lost() && Instant::now() >= guard.deadline());
    assert!(asked.elapsed() >= lease * 9 / 10, "lost too early");
    let next = next.granted().await;
    assert!(asked.elapsed() >= lease, "taken while it was held");
    assert!(asked.elapsed() < lease + env.prompt());
    assert!(matches!(guard.release().await, Err(LockError::Lost)));
    next.release().await.unwrap();
}

pub(super) async fn a_renewed_lease_lapses(env: &Env, mode: LockMode) {
    let lease = env.short_lease();
    let locks = env.client().await;
    let asking = locks.lock(KEY).mode(mode).lease(Lease::Renewed(lease));
    let guard = asking.await.unwrap();
    let next = env
        .client()
        .await
        .lock(KEY)
        .mode(rival(mode))
        .wait(lease * 3);
    let refused = next.await;
    assert!(
        matches!(refused, Err(LockError::Busy { .. })),
        "{refused:?}"
    );
    assert!(!guard.is_lost());
    let renewals = env.ledger().renewals();
    assert!(
        (6..=12).contains(&renewals),
        "{renewals} renewals in three leases"
    );

    guard.release().await.unwrap();
    let renewals = env.ledger().renewals();
    sleep(lease).await;
    assert_eq!(
        env.ledger().renewals(),
        renewals,
        "renewed after its release"
    );
}

pub(super) async fn a_wedged_holder_outlives_its_longest_hold(env: &Env, mode: LockMode) {
    let (lease, longest) = (env.short_lease(), env.short_lease() * 2);
    let asked = Instant::now();
    let asking = env.client().await.lock(KEY).mode(mode).max_hold(longest);
    let wedged = asking.lease(Lease::Renewed(lease)).await.unwrap();
    let next = Waiter::queue(env, env.client().await.lock(KEY).mode(rival(mode))).await;
    wedged.lost().await;
    assert!(asked.elapsed() >= longest * 9 / 10, "lost too early");
    let next = next.granted().await;
    assert!(wedged.is_lost());
    assert!(asked.elapsed() < longest + env.prompt());
    assert!(matches!(wedged.release().await, Err(LockError::Lost)));
    next.release().await.unwrap();
}

/// Others of the same process, which share or take over the hold, keep it for as long as they may.
pub(super) async fn the_longest_hold_of_one_ends_that_of_another(env: &Env, mode: LockMode) {
    let locks = env.client().await;
    let longest = env.short_lease();
    let first = locks.lock(KEY).mode(mode).max_hold(longest).await.unwrap();
    let second = locks.lock(KEY).mode(mode);
    let second = match mode {
        LockMode::Read => second.await.unwrap(),
        _ => {
            let second = Waiter::queue(env, second).await;
            first.release().await.unwrap();
            second.granted().await
        }
    };
    let lost = timeout(longest * 2, second.lost()).await;
    assert!(lost.is_err() && !second.is_lost());
    second.release().await.unwrap();
}

/// One lease among many does not decide how often all the others are renewed.
pub(super) async fn a_short_lease_is_forgotten_among_long_ones(env: &Env, mode: LockMode) {
    let locks = env.client().await;
    let mut long = Vec::new();
    for n in 0..20 {
        long.push(locks.lock(format!("long:{n}")).mode(mode).await.unwrap());
    }
    let lease = env.short_lease();
    let short = locks.lock(KEY).mode(mode).lease(Lease::Renewed(lease));
    let short = short.await.unwrap();
    let lost = timeout(lease * 2, short.lost()).await;
    assert!(lost.is_err(), "it was not renewed in time");
    short.release().await.unwrap();
    for guard in long {
        guard.release().await.unwrap();
    }
}

pub(super) async fn a_lease_too_short_to_be_held_is_tried(env: &Env, mode: LockMode) {
    let locks = env.client().await;
    let asking = locks.lock(KEY).mode(mode);
    let short = Duration::from_millis(5);
    for asking in [
        asking.clone().lease(Lease::Renewed(short)),
        asking.max_hold(short),
    ] {
        let refused = asking.await;
        assert!(matches!(refused, Err(LockError::Invalid(_))), "{refused:?}");
    }
    assert_eq!(env.ledger().questions(), 0);
}
