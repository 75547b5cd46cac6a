//! Exclusion: promises S1, S2, S7.

use super::*;

/// How long a piece of work takes.
const WORK: Duration = Duration::from_millis(2);

pub async fn tasks_exclude_each_other(env: &Harness) {
    overlap(env, &[&env.here], 12).await;
}

pub async fn clients_exclude_each_other(env: &Harness) {
    let third = env.process().await;
    overlap(env, &[&env.here, &env.elsewhere, &third], 4).await;
}

/// In both modes of the family, every task works five times.
async fn overlap(env: &Harness, processes: &[&Process], tasks: usize) {
    const ROUNDS: usize = 5;
    let (site, family) = (CriticalSection::default(), env.family());
    let modes = family.into_iter().cycle().take(tasks);
    let requests = processes.iter().flat_map(|process| {
        let requests = modes.clone().map(|mode| process.lock(KEY).mode(mode));
        requests.map(|request| (request, WORK))
    });
    visits(&site, ROUNDS, requests).join_all().await;
    let writers = family.iter().filter(|mode| **mode != LockMode::Read);
    let writes = writers.count() * processes.len() * tasks / 2 * ROUNDS;
    assert_eq!(site.count(), writes);
    assert!(env.asked().questions > 0);
}

/// So is a request with an owner that holds nothing.
pub async fn another_owner_is_refused(env: &Harness) {
    let guard = env.here.owned().await.unwrap();
    for process in env.both() {
        is_refused(process.rival()).await;
        is_refused(process.rival().owner(&Owner::new())).await;
    }
    guard.release().await.unwrap();
    assert!(!env.is_taken().await);
}

/// The release of an expired hold does not end the next hold.
pub async fn a_late_release_does_not_end_the_next_hold(env: &Harness) {
    let lapsing = env.here.request().lease(env.fixed());
    let (first, second) = (lapsing.clone().await.unwrap(), lapsing);
    let next = env.elsewhere.rival().await.unwrap();
    assert!(first.is_lost());
    drop(first);
    sleep(env.moment).await;
    is_refused(second).await;
    next.release().await.unwrap();
}
