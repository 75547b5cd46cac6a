//! A limited number of holders at a time: promise S1 for permits, L2.

use super::*;

/// The number of permits in most of these cases.
const LIMIT: u32 = 3;

fn permit(process: &Process) -> LockRequest {
    process.lock(KEY).permits(LIMIT)
}

/// Takes every permit, alternating between two processes.
async fn all(processes: [&Process; 2]) -> Vec<LockGuard> {
    let processes = processes.into_iter().cycle().take(LIMIT as usize);
    acquire_all(processes.map(|process| permit(process).wait(Duration::ZERO))).await
}

async fn is_taken(env: &Harness) -> bool {
    env.refuses(LockMode::permits(LIMIT)).await
}

/// With many requests, the limit is also reached.
pub async fn no_more_hold_than_there_are_permits(env: &Harness) {
    let site = CriticalSection::default();
    let processes = [&env.here, &env.elsewhere, &env.process().await];
    let requests = processes.into_iter().cycle().take(12).map(permit);
    let requests = requests.map(|request| (request, env.moment / 4));
    visits(&site, 5, requests).join_all().await;
    assert_eq!(site.most_holders(), LIMIT as usize);
}

/// As many requests as there are permits are granted, and one more is refused.
pub async fn every_permit_is_granted(env: &Harness) {
    let guards = all(env.both()).await;
    assert!(is_taken(env).await);
    assert_err!(permit(&env.here).wait(env.moment).await, Busy);
    release_all(guards).await;
    release_all(all([&env.elsewhere, &env.here]).await).await;
}

/// Each release admits one waiter.
pub async fn one_release_admits_one(env: &Harness) {
    let [here, elsewhere] = env.both();
    let mut guards = all([here, elsewhere]).await;
    let mut entering = crowd([here, elsewhere, here, elsewhere].map(permit));
    sleep(env.moment).await;
    for _ in 0..4 {
        assert!(entering.try_recv().is_err(), "there is no permit");
        guards.swap_remove(0).release().await.unwrap();
        let next = timeout(env.prompt(), entering.recv()).await;
        guards.push(next.expect("one enters").unwrap());
        sleep(env.moment).await;
    }
    release_all(guards).await;
}

/// Several permits become free at once, with one message for all of them.
pub async fn every_waiter_is_granted_when_several_permits_come_free(env: &Harness) {
    let [here, elsewhere] = env.both();
    for holder in [here, elsewhere] {
        let guards = all([holder; 2]).await;
        let waiters = env.all_wait([here, elsewhere, here].map(permit)).await;
        let ends = join_all(guards.into_iter().map(LockGuard::release)).await;
        ends.into_iter().for_each(Result::unwrap);
        for waiter in waiters {
            // Held until the next one is granted as well.
            let guard = waiter.promptly().await;
            tokio::spawn(async move {
                sleep(Duration::from_millis(1)).await;
                drop(guard);
            });
        }
        let are_free = async || !is_taken(env).await;
        env.until("all are free", are_free).await;
        env.store_is_empty().await;
    }
}

pub async fn one_permits_lapse_ends_no_other(env: &Harness) {
    let [here, elsewhere] = env.both();
    let lapsing = permit(here).lease(env.fixed()).await.unwrap();
    let renewed = permit(here).lease(env.renewed()).await.unwrap();
    let long = permit(elsewhere).await.unwrap();
    let next = env.waits(permit(elsewhere)).await;
    lapsing.lost().await;
    let next = next.promptly().await;
    assert!(!renewed.is_lost() && !long.is_lost());
    assert!(is_taken(env).await, "one permit came free, not two");
    sleep(env.short_lease()).await;
    assert!(is_taken(env).await, "a permit that is renewed came free");
    assert_err!(lapsing.release().await, Lost);
    release_all([renewed, long, next]).await;
}

/// By its expiry, and not again by its release.
pub async fn a_lapsed_permit_is_given_back_once(env: &Harness) {
    let [here, elsewhere] = env.both();
    let mut guards = all([here, elsewhere]).await;
    guards.pop().unwrap().release().await.unwrap();
    let lapsed = permit(here).lease(env.fixed()).await.unwrap();
    lapsed.lost().await;
    let next = permit(elsewhere).wait(env.prompt());
    guards.push(next.await.unwrap());
    drop(lapsed);
    sleep(env.moment).await;
    assert!(is_taken(env).await);
    release_all(guards).await;
}

/// The program declares two limits for one resource: it gets an error, and not one of the limits at random.
pub async fn two_limits_at_once_conflict(env: &Harness) {
    let guard = permit(&env.here).await.unwrap();
    for other in [LIMIT - 1, LIMIT + 1] {
        for process in env.both() {
            assert_err!(process.lock(KEY).permits(other).await, Conflict);
        }
    }
    // The same limit is still valid.
    release_all([guard, permit(&env.elsewhere).await.unwrap()]).await;
}

/// The same, where the key is one of several.
pub async fn another_limit_on_several_keys_is_overlooked(env: &Harness) {
    const OTHER: &str = "account:43";
    let guards = env.here.all([KEY, OTHER]).permits(LIMIT).await.unwrap();
    for several in [
        env.elsewhere.any([KEY, OTHER]),
        env.elsewhere.all(["free", OTHER]),
    ] {
        assert_err!(several.permits(LIMIT - 1).await, Conflict);
    }
    guards.release().await.unwrap();
}

/// Neither a request that names another limit nor one that comes too late.
pub async fn a_refused_request_changes_no_limit(env: &Harness) {
    let mut guards = all(env.both()).await;
    for process in env.both() {
        let now = |limit| process.lock(KEY).permits(limit).wait(Duration::ZERO);
        for other in [1, LIMIT - 1, LIMIT + 1, 1000] {
            assert_err!(now(other).await, Conflict);
            assert_err!(now(LIMIT).await, Busy);
        }
        guards.remove(0).release().await.unwrap();
        guards.push(now(LIMIT).await.unwrap());
        assert_err!(now(LIMIT).await, Busy);
    }
    release_all(guards).await;
}

/// A new version of the program has another limit.
pub async fn a_limit_ends_with_its_holds(env: &Harness) {
    let [here, elsewhere] = env.both();
    release_all(all([here, elsewhere]).await).await;
    for limit in [1, LIMIT + 2] {
        let asking = |process: &Process| process.lock(KEY).permits(limit).wait(Duration::ZERO);
        let guards = acquire_all((0..limit).map(|_| asking(elsewhere))).await;
        assert_err!(asking(here).await, Busy);
        release_all(guards).await;
    }
}

/// The process has as many requests at once as there are permits: each asks the store, and none waits for another.
pub async fn permits_of_one_process_are_asked_for_at_once(env: &Harness) {
    const MANY: u32 = 24;
    let asking = (0..MANY).map(|_| env.here.lock(KEY).permits(MANY).acquire());
    let granted = join_all(asking).await;
    let guards: Vec<_> = granted.into_iter().map(Result::unwrap).collect();
    assert_eq!(env.asked().questions, MANY as usize);
    release_all(guards).await;
}

/// One or two requests of a process ask for a free permit, however many wait.
pub async fn few_of_a_crowd_ask_at_a_release(env: &Harness) {
    const CROWD: usize = 24;
    let processes = env.both();
    let guards = all(processes).await;
    let asking = processes.into_iter().cycle().take(CROWD).map(permit);
    let asked = asked_at_a_release(env, guards, asking).await;
    // At first as many requests as there are permits asked concurrently, and were refused together.
    assert!(asked <= 2 * LIMIT as usize + 2, "{asked} questions");
}

/// Each permit that comes free goes to the process that has waited for the longest time, and wakes no other.
pub async fn processes_are_granted_a_permit_in_order(env: &Harness) {
    let guards = all(env.both()).await;
    line::each_release_wakes_the_first(env, guards, LockMode::permits(LIMIT)).await;
}
