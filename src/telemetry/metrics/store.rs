//! The metrics of a store.

use std::sync::LazyLock;

use metrics::{Key, Label, counter, gauge};
use tokio::time::Instant;

use super::{Counted, record};
use crate::telemetry::connection_use::{COMMANDS, RENEWALS, WAKE_UPS};

/// The uses of a connection.
const USES: [&str; 3] = [COMMANDS, RENEWALS, WAKE_UPS];

described! {
    describe_histogram ANSWERED = "distributed_lock_store_answer_duration_seconds":
        "How long the store took to answer.";
    describe_counter UNANSWERED = "distributed_lock_store_unanswered_total": "Commands that the store did not answer.";
    describe_gauge CONNECTIONS = "distributed_lock_store_connections": "Connections to the store that are up.";
    describe_counter CONNECTED = "distributed_lock_store_connected_total": "Connections to the store that were opened.";
    describe_counter FAILED = "distributed_lock_store_connect_failures_total":
        "Connections to the store that could not be opened.";
    describe_counter FAILOVERS = "distributed_lock_failovers_total": "Failovers of the store that were seen.";
    describe_gauge CLOCK_OFFSET = "distributed_lock_clock_offset_seconds": "How far the clock of a server is ahead.";
}

/// Counts a connection, which is up until the returned value is dropped.
pub(crate) fn connected(carries: &'static str) -> Counted {
    counter!(CONNECTED, "carries" => carries).increment(1);
    Counted::new(gauge!(CONNECTIONS, "carries" => carries))
}

/// Counts a connection that could not be opened.
pub(crate) fn failed(carries: &'static str) {
    counter!(FAILED, "carries" => carries).increment(1);
}

/// Counts a failover that this process has seen.
pub(crate) fn failed_over(deployment: &'static str) {
    counter!(FAILOVERS, "deployment" => deployment).increment(1);
}

/// Measures how far the clock of a server is ahead of this process's.
pub(crate) fn clock_offset(server: String, seconds: f64) {
    gauge!(CLOCK_OFFSET, "server" => server).set(seconds);
}

/// Measures the answer to a command that was sent at `since`.
pub(crate) fn answered(carries: &'static str, since: Instant) {
    // Its names and labels are composed once, because every command updates it.
    static KEYS: LazyLock<[Key; USES.len()]> = LazyLock::new(|| {
        USES.map(|carries| {
            Key::from_parts(ANSWERED, vec![Label::from_static_parts("carries", carries)])
        })
    });
    if let Some(place) = USES.iter().position(|name| *name == carries) {
        record(&KEYS[place], since.elapsed());
    }
}

/// Counts a command that was not answered.
pub(crate) fn unanswered(carries: &'static str) {
    counter!(UNANSWERED, "carries" => carries).increment(1);
}
