//! The one clock of all processes.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// CLOCK_MONOTONIC in nanoseconds: the same in every process of a machine.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("the clock of every Linux and BSD");
    u64::try_from(Duration::from(now).as_nanos()).expect("the machine has run for under 500 years")
}
