//! The exported suite, on each store of this crate and in every mode.
//!
//! The cases are those of [`tower_distributed_lock_testing::conformance`]. Each runs as the test
//! `conformance::<store>::<case>::<mode>`; [`complete`] fails if one of these tests is missing without a reason. No case
//! sleeps where it can wait for a condition, and each ends with the assertion that nothing is left: no key in use in a
//! client, nothing in the store.
//!
//! The stores: `memory` on paused time; `distant`, the same with random delays in both directions; `redis`, a server
//! for each test, in real time and on several threads; `cluster`, the same on a Redis Cluster of three masters that all tests share,
//! with names of their own; `worked`, the example in the documentation of `LockStore`. Those of `crates` run it in their own tests.

mod apart;
mod lone;
mod mutants;
mod storm;
mod testbeds;
#[path = "../../docs/worked_store.rs"]
mod worked_store;

mod complete;

/// The suite on one testbed.
macro_rules! on {
    ($($store:ident: $testbed:ident, $claim:tt;)+) => {
        $(mod $store { on!(@ $testbed $claim); })+
    };
    (@ $testbed:ident ($($claim:tt)+)) => {
        tower_distributed_lock_testing::conformance!(super::testbeds::$testbed: $($claim)+);
    };
}

on! {
    memory: Memory, (reentrant fair read write permit, fenced, records, line);
    distant: Distant, (reentrant fair read write permit, fenced, records, line);
    redis: Redis, (reentrant fair read write permit, fenced, records, line);
    cluster: Cluster, (reentrant fair read write permit, fenced, records, line);
    worked: Worked, (reentrant);
}
