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

/// Another request of the process takes over the hold for its own longest hold, or has a hold of its own.
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
