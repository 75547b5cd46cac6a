//! How many renewals are asked for at a time, and when again.

use tokio::time::advance;

use super::*;
use crate::error::StoreErrorKind::Unreachable;

const LEASE: Duration = Duration::from_secs(30);

async fn hold(
    script: &mut Script,
    locks: &LockClient,
    keys: impl IntoIterator<Item = String>,
    lease: Duration,
) -> Vec<LockGuard> {
    let mut guards = Vec::new();
    for key in keys {
        let request = locks.lock(key).lease(Lease::Renewed(lease));
        guards.push(script.grant(request).await);
    }
    guards
}

/// Where all holds are due at once, such as after a pause of the process.
#[tokio::test(start_paused = true)]
async fn two_questions_of_a_partition_are_under_way_unless_they_hang() {
    let (mut script, locks) = Script::client(0);
    let many = (0..450).map(|n| format!("a{n}"));
    let _many = hold(&mut script, &locks, many, LEASE).await;
    let _other = hold(&mut script, &locks, ["b".to_owned()], LEASE).await;
    advance(LEASE / 3).await;
    let due = script.ms();
    let mut sizes = Vec::new();
    let mut hang = Vec::new();
    for _ in 0..3 {
        let (asked, reply) = script.renew().await;
        sizes.push(asked.len());
        hang.push(reply);
    }
    sizes.sort_unstable();
    assert_eq!((script.ms(), sizes), (due, vec![1, 100, 100]));
    for (after, size) in [(100, 100), (100, 100), (200, 50)] {
        let (asked, reply) = script.renew().await;
        assert_eq!((script.ms() - due, asked.len()), (after, size));
        hang.push(reply);
    }
}

/// The server serves others between them, and no hold waits for a question that is answered.
#[tokio::test(start_paused = true)]
async fn an_answer_lets_the_next_question_go() {
    let (mut script, locks) = Script::client(0);
    let many = (0..250).map(|n| format!("a{n}"));
    let _many = hold(&mut script, &locks, many, LEASE).await;
    advance(LEASE / 3).await;
    let due = script.ms();
    let (asked, reply) = script.renew().await;
    let (_, _hangs) = script.renew().await;
    script.is_quiet(ms(50)).await;
    reply.send(vec![HoldStatus::Held; asked.len()]);
    let (asked, _hangs) = script.renew().await;
    assert_eq!((script.ms() - due, asked.len()), (50, 50));
}

#[tokio::test(start_paused = true)]
async fn a_question_that_hangs_for_a_third_of_the_lease_is_asked_again() {
    let (mut script, locks) = Script::client(0);
    let _one = hold(&mut script, &locks, ["a".to_owned()], LEASE).await;
    let (asked, _hangs) = script.renew().await;
    let before = script.ms();
    let (again, _hangs) = script.renew().await;
    assert_eq!(asked, again);
    let after = script.ms() - before;
    assert!((10_075..=10_101).contains(&after), "after {after} ms");
}

/// The longest pause is a second, or a tenth of a short lease.
#[tokio::test(start_paused = true)]
async fn the_pauses_of_an_outage_double() {
    for (lease, pauses) in [
        (30, [100, 200, 400, 800, 1000]),
        (3, [100, 200, 300, 300, 300]),
    ] {
        let (mut script, locks) = Script::client(0);
        let lease = Duration::from_secs(lease);
        let _one = hold(&mut script, &locks, ["a".to_owned()], lease).await;
        let (_, mut reply) = script.renew().await;
        for pause in pauses {
            reply.fail(Unreachable);
            let before = script.ms();
            (_, reply) = script.renew().await;
            let after = script.ms() - before;
            assert!((pause * 3 / 4..=pause + 1).contains(&after), "{after} ms");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_an_answer_leaves_open_is_renewed_again_after_a_tenth_of_its_lease() {
    let (mut script, locks) = Script::client(0);
    let lease = Duration::from_secs(3);
    let both = ["a1", "a2"].map(String::from);
    let _both = hold(&mut script, &locks, both, lease).await;
    advance(lease / 3).await;
    let (asked, reply) = script.renew().await;
    let open = asked[1].clone();
    reply.send(vec![HoldStatus::Held, HoldStatus::Unknown]);
    let answered = script.ms();
    let (asked, _hangs) = script.renew().await;
    assert_eq!((script.ms() - answered, asked), (300, vec![open]));
}

/// Otherwise a pause of the process would have all holds renewed together ever after.
#[tokio::test(start_paused = true)]
async fn holds_that_were_renewed_late_together_come_apart_and_none_waits_longer() {
    let (mut script, locks) = Script::client(0);
    let some = (0..30).map(|n| format!("a{n}"));
    let some = hold(&mut script, &locks, some, LEASE).await;
    advance(LEASE * 2 / 3).await;
    let (asked, reply) = script.renew().await;
    assert_eq!(asked.len(), some.len());
    reply.send(vec![HoldStatus::Held; asked.len()]);
    let (renewed, mut left, mut questions) = (script.ms(), some.len(), 0);
    while left > 0 {
        let (asked, reply) = script.renew().await;
        let after = script.ms() - renewed;
        assert!(after <= (LEASE / 3).as_millis(), "after {after} ms");
        reply.send(vec![HoldStatus::Held; asked.len()]);
        left -= asked.len();
        questions += 1;
    }
    assert!(questions > 1);
}
