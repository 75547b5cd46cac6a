//! The cost of a console without a viewer, in allocations, which do not depend on the load of the
//! machine.

use std::alloc::System;
use std::time::Duration;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tower_distributed_lock::LockClient;
use tower_distributed_lock_console as console;

use crate::support::{Console, Peer};

/// The heap of every process of this binary.
const HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PAIRS: usize = 1000;

/// More keys than a console keeps, and many more than that.
const FULL: usize = 600;
const STORM: usize = 2400;

/// The role: reports the allocations for a thousand locks, before and after there is a console.
pub(crate) async fn watched(mut console: Console) {
    let locks = super::locks();
    pairs(&locks).await;
    let before = allocations(&locks).await;
    let router = console::router(&locks);
    pairs(&locks).await;
    let after = allocations(&locks).await;
    drop(router);
    console.say(format!("{before} {after}"));
    console.hear().await;
}

/// The role: reports how many bytes a storm of distinct keys leaves behind, without a console and with one.
pub(crate) async fn crowded(mut console: Console) {
    let plain = super::locks();
    let before = left_by_a_storm(&plain).await;
    let watched = super::locks();
    let router = console::router(&watched);
    let after = left_by_a_storm(&watched).await;
    drop(router);
    console.say(format!("{before} {after}"));
    console.hear().await;
}

/// How many bytes more there are after a storm than before it. A smaller storm goes before it: what is bounded is full.
async fn left_by_a_storm(locks: &LockClient) -> isize {
    let bytes = || {
        let stats = HEAP.stats();
        stats.bytes_allocated.cast_signed() - stats.bytes_deallocated.cast_signed()
    };
    storm(locks, 0..FULL).await;
    let before = bytes();
    storm(locks, FULL..FULL + STORM).await;
    bytes() - before
}

/// For each number a key of its own: a hold that is lost, and requests that are refused, at once and after a wait.
async fn storm(locks: &LockClient, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let key = format!("key:{number:09}");
        let lock = || locks.lock(&*key);
        let guard = lock().await.expect("free");
        for wait in [Duration::ZERO, Duration::from_millis(1)] {
            assert!(lock().wait(wait).await.is_err());
        }
        let admin = locks.admin().expect("memory");
        assert!(admin.force_unlock(&*key).await.expect("a lock"));
        assert!(guard.release().await.is_err());
    }
}

async fn allocations(locks: &LockClient) -> usize {
    let count = || HEAP.stats().allocations + HEAP.stats().reallocations;
    let before = count();
    pairs(locks).await;
    count() - before
}

async fn pairs(locks: &LockClient) {
    for _ in 0..PAIRS {
        let guard = locks.lock("counted").label("/counted").await;
        guard.expect("free").release().await.expect("held");
    }
}

#[tokio::test]
async fn a_console_without_viewers_costs_no_allocation() {
    let mut peer = Peer::start("watched");
    let said = peer.hear().await;
    let counts: Vec<usize> = said
        .split(' ')
        .map(|count| count.parse().unwrap())
        .collect();
    println!(
        "allocations of {PAIRS} locks: {} without a console, {} with one",
        counts[0], counts[1]
    );
    // A background task may allocate sometimes.
    assert!(counts[1] <= counts[0] + PAIRS / 100, "{said}");
}

#[tokio::test]
async fn the_past_of_many_keys_takes_bounded_memory() {
    let mut peer = Peer::start("crowded");
    let said = peer.hear().await;
    let grown: Vec<isize> = said
        .split(' ')
        .map(|bytes| bytes.parse().unwrap())
        .collect();
    let (without, with) = (grown[0], grown[1]);
    println!("{STORM} keys leave {without} bytes without a console, {with} with one");
    // One event or one contended key of each would be 100 bytes and more.
    let few = isize::try_from(STORM).unwrap() * 40;
    assert!(with - without < few, "{said}");
}
