//! When the keeper is woken for a visit, the release of a hold that others share, and one whose caller leaves.

use futures_util::FutureExt;
use tokio::time::advance;

use super::*;
use crate::error::StoreErrorKind;
use crate::exploration::script::Script;
use crate::guard::LockGuard;
use crate::lock::{Lease, Owner};
use crate::store::Record;
use crate::store::memory::MemoryStore;
use crate::{LockClient, LockRequest};

fn agenda() -> Agenda {
    Agenda {
        origin: Instant::now(),
        alarm: AtomicU64::new(u64::MAX),
        work: Notify::new(),
        checks: Mutex::default(),
    }
}

fn is_woken(agenda: &Agenda) -> bool {
    agenda.work.notified().now_or_never().is_some()
}

/// Each wake-up is a round through all shards, so that a visit after the alarm must cost none.
#[tokio::test(start_paused = true)]
async fn the_keeper_is_woken_for_a_visit_before_its_alarm_alone() {
    let agenda = agenda();
    let at = |seconds| agenda.origin + Duration::from_secs(seconds);
    agenda.begin();
    agenda.set(at(10));
    for (visit, wakes) in [(20, false), (10, false), (5, true), (7, false), (5, false)] {
        agenda.visit(at(visit));
        assert_eq!(is_woken(&agenda), wakes, "for {visit}");
    }
    // It looks at all of them: whatever comes meanwhile wakes it.
    agenda.begin();
    agenda.visit(at(30));
    assert!(is_woken(&agenda));
    agenda.set(at(40));
    agenda.visit(at(35));
    assert!(!is_woken(&agenda), "the visit before is the alarm");
}

const LEASE: Duration = Duration::from_secs(30);

/// Two guards of one owner, which share a hold that is not renewed.
async fn two_guards() -> [LockGuard; 2] {
    let locks = LockClient::new(MemoryStore::new());
    let owner = Owner::new();
    let request = || -> LockRequest { locks.lock("k").owner(&owner).lease(Lease::Fixed(LEASE)) };
    let first = request().await.expect("free");
    [first, request().await.expect("its own")]
}

/// The store still carries it, by its own clock, so that only this process knows.
#[tokio::test(start_paused = true)]
async fn a_share_that_ends_after_the_deadline_of_its_hold_is_lost() {
    let [first, second] = two_guards().await;
    let left = first.deadline() - Instant::now();
    assert!(left < LEASE);
    advance(left).await;
    for guard in [first, second] {
        let released = guard.release().await;
        assert!(matches!(released, Err(LockError::Lost)), "{released:?}");
    }
}

/// Others still work under the hold, so that what the record says may not be true.
#[tokio::test(start_paused = true)]
async fn a_share_beside_others_leaves_no_record() {
    let [first, second] = two_guards().await;
    let record = || Some(Record::new("done", LEASE));
    let released = first.end(record()).in_time().await;
    assert!(
        matches!(released, Err(LockError::Invalid(_))),
        "{released:?}"
    );
    let released = second.end(record()).in_time().await;
    released.expect("it is the last one");
}

/// With its answer, which needs no place among the releases that no caller waits for.
#[tokio::test(start_paused = true)]
async fn a_release_whose_caller_leaves_goes_on() {
    let (mut script, locks) = Script::client(0);
    let mut hang = Vec::new();
    for n in 0..BATCH {
        drop(script.grant(locks.lock(format!("k{n}"))).await);
        hang.push(script.release().await);
    }
    let guard = script.grant(locks.lock("k")).await;
    let next = tokio::spawn(locks.lock("k").acquire());
    let releasing = tokio::spawn(guard.release());
    let (_, reply) = script.release().await;
    releasing.abort();
    drop(releasing.await);
    reply.fail(StoreErrorKind::Unreachable);
    // Who waits for its end goes on at the first answer.
    let (_, reply) = script.acquire().await;
    assert_eq!(script.ms(), 0);
    reply.grant();
    let next = next.await.expect("no panic");
    let (hold, reply) = script.release().await;
    assert_eq!(hold.key.as_str(), "k");
    reply.send(HoldStatus::Held.into());
    drop((next, hang));
}

#[tokio::test(start_paused = true)]
async fn a_question_whose_caller_leaves_is_driven_to_its_end() {
    let (mut script, locks) = Script::client(0);
    let guard = script.grant(locks.lock("k")).await;
    assert!(guard.hold_at_least(LEASE * 2).now_or_never().is_none());
    let (_, reply) = script.renew().await;
    reply.send(vec![HoldStatus::Held]);
}

#[tokio::test]
async fn a_guard_that_is_dropped_has_released_its_key_in_memory() {
    let locks = LockClient::new(MemoryStore::new());
    drop(locks.lock("k").await.expect("free"));
    let again = locks.lock("k").wait(Duration::ZERO).acquire();
    let again = again.now_or_never().expect("it answers at once");
    drop(again.expect("free"));
}
