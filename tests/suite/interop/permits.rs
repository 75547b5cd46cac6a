//! Permits, which both languages share: Redisson's `RPermitExpirableSemaphore`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use tower_distributed_lock::{
    Inspection, Lease, ListQuery, LockAdmin, LockClient, LockError, LockGuard,
};

use super::Meeting;
use super::redisson::{Redisson, Version, now};

/// Longer than any test: a request that waits this long was not woken.
const LONG: Duration = Duration::from_secs(30);

const AT_ONCE: Duration = Duration::ZERO;

async fn take(locks: &LockClient, name: &str, limit: u32) -> LockGuard {
    let taking = locks.lock(name).permits(limit).lease(Lease::Fixed(LONG));
    taking.await.expect("a permit")
}

async fn is_free_for_rust(locks: &LockClient, name: &str, limit: u32) -> bool {
    match locks.lock(name).permits(limit).wait(AT_ONCE).await {
        Ok(guard) => {
            guard.release().await.expect("held");
            true
        }
        Err(LockError::Busy { .. }) => false,
        Err(error) => panic!("neither free nor taken: {error}"),
    }
}

async fn is_free_for_java(java: &Redisson, name: &str) -> bool {
    let id = java.take_permit(name, AT_ONCE, LONG).await.unwrap();
    id != "none" && java.give_permit(name, &id).await.unwrap()
}

/// The key as the list of all keys shows it.
async fn listed(admin: &LockAdmin, name: &str) -> Option<Inspection> {
    let mut query = ListQuery::new().prefix(name);
    loop {
        let page = admin.locks(&query).await.expect("a page");
        let mut entries = page.entries.into_iter();
        if let Some(entry) = entries.find(|entry| entry.key.as_str() == name) {
            return Some(entry.inspection);
        }
        query = query.after(page.next?);
    }
}

/// Runs a test with each Redisson, a client of ours, and a name that no other test uses.
async fn each(meeting: &Meeting, test: impl AsyncFn(&Arc<Redisson>, LockClient, String)) {
    let mut tests = Vec::new();
    for version in Version::ALL {
        for name in meeting.names() {
            let locks = LockClient::new(meeting.store());
            tests.push(test(meeting.redisson(version), locks, name));
        }
    }
    join_all(tests).await;
}

#[tokio::test]
async fn one_limit_counts_for_both_languages() {
    let meeting = Meeting::open().await;
    each(&meeting, async |java, locks, name| {
        let name = &*name;
        // Java sets the limit.
        assert!(java.set_permits(name, 2).await.unwrap());
        let theirs = java.take_permit(name, AT_ONCE, LONG).await.unwrap();
        let ours = take(&locks, name, 2).await;
        assert!(!is_free_for_java(java, name).await && !is_free_for_rust(&locks, name, 2).await);
        assert_eq!(java.free_permits(name).await.unwrap(), 0);
        let admin = LockAdmin::new(meeting.store());
        let seen = admin.inspect(name).await.expect("permits");
        assert_eq!((seen.limit, seen.holders.len()), (Some(2), 2));
        assert!(seen.holders.iter().any(|holder| holder.id == theirs));
        let listed = listed(&admin, name).await.expect("it is listed");
        assert_eq!((listed.limit, listed.holders.len()), (Some(2), 2));

        // Java's limit counts, whatever an attempt names.
        assert!(!is_free_for_rust(&locks, name, 3).await);
        java.add_permits(name, 1).await.unwrap();
        assert!(is_free_for_rust(&locks, name, 2).await && is_free_for_java(java, name).await);

        assert!(java.give_permit(name, &theirs).await.unwrap());
        ours.release().await.expect("held");
        assert_eq!(java.free_permits(name).await.unwrap(), 3);

        // Our side sets the limit: by an attempt, and by the admin.
        let own = &format!("own-{name}");
        let ours = take(&locks, own, 2).await;
        assert!(!java.set_permits(own, 5).await.unwrap());
        let theirs = java.take_permit(own, AT_ONCE, LONG).await.unwrap();
        assert!(!is_free_for_java(java, own).await && !is_free_for_rust(&locks, own, 2).await);
        admin.set_permits(own.as_str(), 3).await.expect("set");
        assert!(is_free_for_java(java, own).await && is_free_for_rust(&locks, own, 2).await);
        assert!(java.give_permit(own, &theirs).await.unwrap());
        ours.release().await.expect("held");
        assert_eq!(java.free_permits(own).await.unwrap(), 3);
    })
    .await;
}

#[tokio::test]
async fn a_permit_that_comes_free_wakes_the_other_language() {
    let meeting = Meeting::open().await;
    each(&meeting, async |java, locks, name| {
        let ours = take(&locks, &name, 1).await;
        let waiting = tokio::spawn({
            let (java, name) = (java.clone(), name.clone());
            async move { java.take_permit(&name, LONG, LONG).await }
        });
        meeting.until_waiting([(&name, 1)]).await;
        let released = now();
        ours.release().await.expect("held");
        let taken = waiting.await.expect("it ends");
        let took = taken.ended.checked_sub(released);
        assert!(took.expect("not before") < LONG / 3);
        let theirs = taken.unwrap();

        let waiting = tokio::spawn({
            let (locks, name) = (locks.clone(), name.clone());
            // It would poll within a second.
            async move { (take(&locks, &name, 1).await, now()) }
        });
        meeting.until_waiting([(&name, 1)]).await;
        let given = java.give_permit(&name, &theirs).await;
        let (ours, since) = waiting.await.expect("it ends");
        assert!(since >= given.began);
        assert!(given.unwrap());
        ours.release().await.expect("held");
    })
    .await;
}

/// By the clock of the server, and by that of the other client.
#[tokio::test]
async fn a_permit_of_a_dead_holder_comes_free_for_the_other_language() {
    const SHORT: Duration = Duration::from_secs(1);
    let meeting = Meeting::open().await;
    each(&meeting, async |java, locks, name| {
        assert!(java.set_permits(&name, 1).await.unwrap());
        let dead = java.take_permit(&name, AT_ONCE, SHORT).await;
        let (began, dead) = (dead.began, dead.unwrap());
        let ours = take(&locks, &name, 1).await;
        assert!(now() - began >= SHORT * 9 / 10, "taken while it was held");
        assert!(!java.give_permit(&name, &dead).await.unwrap());
        assert!(!is_free_for_java(java, &name).await, "given back twice");
        ours.release().await.expect("held");

        let lapsing = locks.lock(name.as_str()).permits(1);
        let lapsing = lapsing.lease(Lease::Fixed(SHORT)).await.expect("free");
        let asked = now();
        let theirs = java.take_permit(&name, LONG, LONG).await;
        assert!(theirs.ended - asked >= SHORT / 2, "taken while it was held");
        assert!(theirs.ended - asked < LONG / 3);
        let theirs = theirs.unwrap();
        assert!(matches!(lapsing.release().await, Err(LockError::Lost)));
        assert!(java.give_permit(&name, &theirs).await.unwrap());
    })
    .await;
}

/// A renewed permit of ours stays, and Redisson's without end too.
#[tokio::test]
async fn permits_that_are_held_stay_held() {
    const SHORT: Duration = Duration::from_secs(1);
    let meeting = Meeting::open().await;
    each(&meeting, async |java, locks, name| {
        let renewed = locks.lock(name.as_str()).permits(2);
        let renewed = renewed.lease(Lease::Renewed(SHORT)).await.expect("free");
        let endless = java.take_permit_for_ever(&name).await.unwrap();
        tokio::time::sleep(SHORT * 2).await;
        assert!(!is_free_for_java(java, &name).await);
        assert!(!is_free_for_rust(&locks, &name, 2).await);
        renewed.release().await.expect("renewed all the time");
        assert!(java.give_permit(&name, &endless).await.unwrap());
    })
    .await;
}

/// S1. Both languages take and release permits, and there are never more holders than permits.
#[tokio::test]
async fn never_more_hold_than_there_are_permits() {
    const LIMIT: u32 = 3;
    const ROUNDS: usize = 25;
    let meeting = Meeting::open().await;
    each(&meeting, async |java, locks, name| {
        assert!(java.set_permits(&name, LIMIT).await.unwrap());
        // The certain begin and end of each hold.
        let holds = &Mutex::new(Vec::new());
        let (java, locks, name) = (&**java, &locks, &*name);
        let theirs = (0..4).map(async |_| {
            for _ in 0..ROUNDS {
                let taken = java.take_permit(name, LONG, LONG).await;
                let (from, id) = (taken.ended, taken.unwrap());
                assert_ne!(id, "none", "starved");
                let given = java.give_permit(name, &id).await;
                holds.lock().unwrap().push((from, given.began));
                assert!(given.unwrap());
            }
        });
        let ours = (0..4).map(async |_| {
            for _ in 0..ROUNDS {
                let guard = take(locks, name, LIMIT).await;
                let from = now();
                tokio::time::sleep(Duration::from_millis(1)).await;
                holds.lock().unwrap().push((from, now()));
                guard.release().await.expect("held");
            }
        });
        tokio::join!(join_all(theirs), join_all(ours));
        let holds = std::mem::take(&mut *holds.lock().unwrap());
        assert_eq!(holds.len(), 8 * ROUNDS);
        let at_once = |at: Duration| {
            holds
                .iter()
                .filter(move |(from, to)| *from <= at && at < *to)
        };
        let most = holds.iter().map(|(from, _)| at_once(*from).count()).max();
        assert!(most <= Some(LIMIT as usize), "{most:?} at a time");
        assert_eq!(java.free_permits(name).await.unwrap(), u64::from(LIMIT));
    })
    .await;
}
