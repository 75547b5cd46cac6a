//! The cost of a console without a viewer, in allocations, which do not depend on the load of the
//! machine.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tower_distributed_lock::{LockClient, console};

use crate::support::{Console, Peer};

/// The heap of every process of this binary.
const HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PAIRS: usize = 1000;

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
async fn a_console_that_nobody_looks_at_costs_no_allocation() {
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
