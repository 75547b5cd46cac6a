//! Exclusion: promises S1, S2, S7.

use super::*;

/// How long a piece of work takes.
const WORK: Duration = Duration::from_millis(2);

pub async fn tasks_exclude_each_other(env: &Env, mode: LockMode) {
    overlap(env, mode, &[env.client().await], 12).await;
}

pub async fn clients_exclude_each_other(env: &Env, mode: LockMode) {
    let clients = [env.client().await, env.client().await, env.client().await];
    overlap(env, mode, &clients, 4).await;
}

/// In both modes of the family, every task works five times.
async fn overlap(env: &Env, mode: LockMode, clients: &[LockClient], tasks: usize) {
    const ROUNDS: usize = 5;
    let (site, family) = (Site::default(), env.family(mode));
    let modes = family.into_iter().cycle().take(tasks);
    let requests = clients.iter().flat_map(|locks| {
        let requests = modes.clone().map(|mode| locks.lock(KEY).mode(mode));
        requests.map(|request| (request, WORK))
    });
    visits(&site, ROUNDS, requests).join_all().await;
    let writers = family.iter().filter(|mode| **mode != LockMode::Read);
    let writes = writers.count() * clients.len() * tasks / 2 * ROUNDS;
    assert_eq!(site.count(), writes);
    assert!(env.calls.questions() > 0);
}

/// So is a request with an owner that holds nothing.
pub async fn another_owner_is_refused(env: &Env, mode: LockMode) {
    let locks = env.client().await;
    let (owner, stranger) = (Owner::new(), Owner::new());
    let guard = locks.lock(KEY).mode(mode).owner(&owner).await.unwrap();
    for client in [&locks, &env.client().await] {
        let asking = client.lock(KEY).mode(rival(mode)).wait(Duration::ZERO);
        assert!(asking.clone().await.is_err());
        assert!(asking.owner(&stranger).await.is_err());
    }
    guard.release().await.unwrap();
    assert!(!env.is_taken(rival(mode)).await);
}

/// The release of an expired hold does not end the next hold.
pub async fn a_late_release_does_not_end_the_next_hold(env: &Env, mode: LockMode) {
    let lease = Lease::Fixed(env.short_lease());
    let lapsing = env.request(mode).await.lease(lease);
    let (first, second) = (lapsing.clone().await.unwrap(), lapsing);
    let next = env.held_elsewhere(KEY, rival(mode)).await;
    assert!(first.is_lost());
    drop(first);
    sleep(env.moment).await;
    assert!(second.wait(Duration::ZERO).await.is_err());
    next.release().await.unwrap();
}
