//! How long a hold lives: promises S4, L1, L9.

use super::*;

/// The holder learns of the end before another owner can get the lock.
pub async fn a_fixed_lease_ends_at_its_time(env: &Harness) {
    let (lease, asking) = (env.short_lease(), env.here.request());
    let taken = ends_after(env, lease, asking.lease(env.fixed())).await;
    assert!(taken >= lease, "taken while it was held");
}

/// The hold of the request ends after this life, and the next owner gets the lock. Returns when it does, from the question on.
async fn ends_after(env: &Harness, life: Duration, asking: LockRequest) -> Duration {
    let asked = Instant::now();
    let guard = asking.await.unwrap();
    assert!(guard.deadline() <= Instant::now() + life && !guard.is_lost());
    let next = env.waits(env.elsewhere.rival()).await;
    guard.lost().await;
    assert!(guard.is_lost() && Instant::now() >= guard.deadline());
    assert!(asked.elapsed() >= life * 9 / 10, "lost too early");
    let next = next.granted().await;
    let taken = asked.elapsed();
    assert!(taken < life + env.prompt());
    assert_err!(guard.release().await, Lost);
    next.release().await.unwrap();
    taken
}

/// At every moment, the guard's deadline is before the time at which the store would grant the lock to another owner.
pub async fn a_renewed_lease_lasts_until_the_release(env: &Harness) {
    let lease = env.short_lease();
    let guard = env.here.request().lease(env.renewed()).await.unwrap();
    let next = env.waits(env.elsewhere.rival()).await;
    let until = Instant::now() + lease * 2;
    while Instant::now() < until {
        assert!(guard.deadline() <= Instant::now() + lease && !guard.is_lost());
        next.keeps_waiting(env).await;
    }
    let renewals = env.asked().renewals;
    assert!((3..=8).contains(&renewals), "{renewals} in two leases");

    guard.release().await.unwrap();
    next.serve_promptly().await;
    let renewals = env.asked().renewals;
    sleep(lease / 2).await;
    assert_eq!(env.asked().renewals, renewals, "after its release");
}

pub async fn a_holder_loses_its_lock_at_its_longest_hold(env: &Harness) {
    let longest = env.short_lease() * 3 / 2;
    let asking = env.here.request().lease(env.renewed());
    ends_after(env, longest, asking.max_hold(longest)).await;
}

/// Other requests of the process that share or take over the hold keep it for their own longest hold.
pub async fn the_longest_hold_of_one_does_not_end_that_of_another(env: &Harness) {
    let longest = env.short_lease();
    let first = env.here.request().max_hold(longest).await.unwrap();
    let second = match env.mode {
        LockMode::Read => env.here.request().await.unwrap(),
        _ => {
            let second = env.waits(env.here.request()).await;
            first.release().await.unwrap();
            second.granted().await
        }
    };
    let lost = timeout(longest * 3 / 2, second.lost()).await;
    assert!(lost.is_err() && !second.is_lost());
    second.release().await.unwrap();
}

/// The last renewal before a limit is shorter than the lease, and the next one would be at its end: the first is at a
/// random moment between a twelfth and a third of the lease, and the third is less than a third of it before this limit.
pub async fn a_limit_that_is_extended_late_keeps_the_hold(env: &Harness) {
    let lease = env.short_lease() * 2;
    let asking = env.here.owned().lease(Lease::Renewed(lease));
    let longest = lease * 13 / 12;
    let limited = asking.clone().max_hold(longest).await.unwrap();
    let limit = Instant::now() + longest;
    // After the last renewal. In real time, a busy machine needs more time before the limit.
    let rest = if env.is_paused { 16 } else { 4 };
    sleep_until(limit - lease / rest).await;
    let unlimited = asking.await.unwrap();
    sleep_until(limit + lease).await;
    assert!(limited.is_lost() && !unlimited.is_lost());
    assert_err!(limited.release().await, Lost);
    unlimited.release().await.unwrap();
}

/// A renewal ends at the longest hold of the requests that share the hold, and shortens nothing. A request that joins later has no
/// more than the store keeps.
pub async fn a_request_that_joins_late_has_no_more_than_the_store_keeps(env: &Harness) {
    // Ignore a try if the test was paused: then the hold was renewed before the first request ended, or once too often, or has
    // ended.
    for _ in 0..20 {
        if joined_late(env).await {
            return;
        }
    }
    panic!("the test was paused each time");
}

/// One try. Returns `false` if it is to be ignored.
async fn joined_late(env: &Harness) -> bool {
    let lease = env.short_lease();
    let asking = env.process().await.owned().lease(env.renewed());
    let (earlier, begun) = (env.asked().renewals, Instant::now());
    let outer = asking.clone().await.unwrap();
    let granted_until = outer.deadline();
    let limited = asking.clone().max_hold(lease / 2).await.unwrap();
    let limit = Instant::now() + lease / 2;
    drop(outer);
    // The first renewal is due after a third of the lease.
    if env.asked().renewals > earlier || begun.elapsed() > lease / 4 {
        return false;
    }
    let is_renewed = async || env.asked().renewals > earlier;
    env.until("it was renewed", is_renewed).await;
    sleep(env.moment).await;
    let renewals = env.asked().renewals;
    let late = asking.await.unwrap();
    let deadline = late.deadline();
    if env.asked().renewals > renewals || Instant::now() >= limit {
        return false;
    }
    let long = deadline.saturating_duration_since(granted_until);
    assert!(long.is_zero(), "{long:?} too long");
    drop((limited, late));
    true
}

/// A short lease among many does not change how often the others are renewed.
pub async fn a_short_lease_is_renewed_in_time_among_long_ones(env: &Harness) {
    let long = acquire_all((0..20).map(|n| env.here.on(format!("long:{n}")))).await;
    let short = env.here.request().lease(env.renewed()).await.unwrap();
    let lost = timeout(env.short_lease() * 3 / 2, short.lost()).await;
    assert!(lost.is_err(), "it was not renewed in time");
    short.release().await.unwrap();
    release_all(long).await;
}

pub async fn a_lease_too_short_to_be_held_is_refused(env: &Harness) {
    let asking = env.here.request();
    let short = Duration::from_millis(5);
    let leased = asking.clone().lease(Lease::Renewed(short));
    assert_err!(leased.await, Invalid);
    assert_err!(asking.max_hold(short).await, Invalid);
    assert_eq!(env.asked().questions, 0);
}

/// The first renewal of a hold is at a random moment within a third of its lease, so that holds that were granted
/// together are not always renewed together. An early first renewal does not shorten the lease.
pub async fn an_early_renewal_does_not_shorten_the_lease(env: &Harness) {
    let lease = env.short_lease();
    let asked = Instant::now();
    let many = (0..10).map(|n| env.here.on(format!("many:{n}")).lease(env.renewed()));
    let guards = acquire_all(many).await;
    let mut deadlines: Vec<_> = guards.iter().map(|guard| guard.deadline()).collect();
    let mut first = None;
    while asked.elapsed() < lease * 3 {
        sleep(env.moment).await;
        for (guard, last) in guards.iter().zip(&mut deadlines) {
            let deadline = guard.deadline();
            assert!(deadline >= *last, "a renewal took something away");
            assert!(!guard.is_lost());
            if deadline > *last {
                first.get_or_insert(asked.elapsed());
            }
            *last = deadline;
        }
    }
    let first = first.expect("they were renewed");
    // No first renewal is later; most are earlier. In real time, a busy machine delays them.
    let latest = lease / 3 + env.prompt();
    assert!(
        !env.is_paused || first < latest,
        "the first after {first:?}"
    );
    release_all(guards).await;
}
