//! A share that ends while others go on: the store is asked whether it carries the hold.

use super::*;
use crate::error::StoreErrorKind::Unreachable;

type Released = JoinHandle<Result<(), LockError>>;

/// Guards that share the hold of a key.
async fn shared(
    script: &mut Script,
    locks: &LockClient,
    key: &str,
    count: usize,
) -> Vec<LockGuard> {
    let owner = Owner::new();
    let request = locks.lock(key).owner(&owner);
    let request = request.lease(Lease::Fixed(Duration::from_secs(3600)));
    let mut guards = vec![script.grant(request.clone()).await];
    while guards.len() < count {
        guards.push(request.clone().await.expect("its own"));
    }
    guards
}

fn release(guards: &mut Vec<LockGuard>) -> Released {
    tokio::spawn(guards.pop().expect("one is left").release())
}

/// Four guards share a hold, and two others one in another partition.
async fn two_partitions() -> (Script, LockClient, Vec<LockGuard>, Vec<LockGuard>) {
    let (mut script, locks) = Script::client(0);
    let some = shared(&mut script, &locks, "a", 4).await;
    let others = shared(&mut script, &locks, "b", 2).await;
    (script, locks, some, others)
}

#[tokio::test(start_paused = true)]
async fn a_check_that_hangs_delays_the_next_of_its_partition_by_a_tenth_of_a_second() {
    let (mut script, _locks, mut some, mut others) = two_partitions().await;
    let first = release(&mut some);
    let (_, hangs) = script.renew().await;
    assert_eq!(script.ms(), 0);
    script.is_quiet(ms(10)).await;
    let (_second, other) = (release(&mut some), release(&mut others));
    let (asked, reply) = script.renew().await;
    assert_eq!((script.ms(), keys(&asked)), (10, vec!["b"]));
    reply.send(vec![HoldStatus::Held]);
    other.await.expect("no panic").expect("held");
    let (asked, _hangs) = script.renew().await;
    assert_eq!((script.ms(), keys(&asked)), (100, vec!["a"]));
    // Nor does the answer to the first one let a third question go beside the second.
    script.is_quiet(ms(10)).await;
    hangs.send(vec![HoldStatus::Held]);
    first.await.expect("no panic").expect("held");
    let _third = release(&mut some);
    script.renew().await;
    assert_eq!(script.ms(), 200);
}

#[tokio::test(start_paused = true)]
async fn checks_that_come_while_one_is_under_way_share_the_next_at_its_answer() {
    let (mut script, _locks, mut some, _others) = two_partitions().await;
    let first = release(&mut some);
    let (_, reply) = script.renew().await;
    script.is_quiet(ms(10)).await;
    let both = [release(&mut some), release(&mut some)];
    script.is_quiet(ms(40)).await;
    reply.send(vec![HoldStatus::Held]);
    let (asked, reply) = script.renew().await;
    assert_eq!((script.ms(), asked.len()), (50, 1));
    reply.send(vec![HoldStatus::Held]);
    for released in both.into_iter().chain([first]) {
        released.await.expect("no panic").expect("held");
    }
    script.is_quiet(ms(10_000)).await;
}

#[tokio::test(start_paused = true)]
async fn what_an_answer_leaves_open_is_asked_again() {
    let (mut script, locks) = Script::client(0);
    let mut one = shared(&mut script, &locks, "a1", 2).await;
    let mut other = shared(&mut script, &locks, "a2", 2).await;
    let (one, other) = (release(&mut one), release(&mut other));
    let (asked, reply) = script.renew().await;
    assert_eq!(keys(&asked), ["a1", "a2"]);
    reply.send(vec![HoldStatus::Held, HoldStatus::Unknown]);
    one.await.expect("no panic").expect("held");
    let (asked, reply) = script.renew().await;
    assert_eq!(keys(&asked), ["a2"]);
    assert!((15..=20).contains(&script.ms()), "{}", script.ms());
    reply.fail(Unreachable);
    let (_, reply) = script.renew().await;
    reply.send(vec![HoldStatus::Held]);
    other.await.expect("no panic").expect("held");
    script.is_quiet(ms(10_000)).await;
}

#[tokio::test(start_paused = true)]
async fn a_check_ends_when_those_who_wait_for_it_have_given_up() {
    let (mut script, _locks, mut some, _others) = two_partitions().await;
    let released = release(&mut some);
    let mut asked = 0;
    while let Some((_, reply)) = script.renewed_before(ms(10_000)).await {
        asked += 1;
        assert!(script.ms() <= 2000, "{}", script.ms());
        reply.fail(Unreachable);
    }
    // Its pauses double from 20 ms to a second.
    assert!((6..=10).contains(&asked), "{asked} questions");
    let released = released.await.expect("no panic");
    assert!(
        matches!(released, Err(LockError::Unconfirmed(_))),
        "{released:?}"
    );
}
