//! The metrics of a store. `off.rs` has the same interface and does nothing.

use metrics::{Gauge, Key, Label, Level, Metadata, counter, gauge, with_recorder};
use tokio::time::Instant;

use super::{COMMANDS, RENEWALS, WAKE_UPS};
use crate::telemetry::described::described;

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

/// A connection that is up.
pub(super) struct GaugedUp(Gauge);

/// Counts a connection, which is up until the returned value is dropped.
pub(super) fn connected(carries: &'static str) -> GaugedUp {
    counter!(CONNECTED, "carries" => carries).increment(1);
    let connections = gauge!(CONNECTIONS, "carries" => carries);
    connections.increment(1);
    GaugedUp(connections)
}

impl Drop for GaugedUp {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}

/// Counts a connection that could not be opened.
pub(super) fn failed(carries: &'static str) {
    counter!(FAILED, "carries" => carries).increment(1);
}

/// Counts a failover that this process has seen.
pub(super) fn failed_over(deployment: &'static str) {
    counter!(FAILOVERS, "deployment" => deployment).increment(1);
}

/// Measures how far the clock of a server is ahead of this process's.
pub(super) fn clock_offset(server: &str, seconds: f64) {
    gauge!(CLOCK_OFFSET, "server" => server.to_owned()).set(seconds);
}

/// Measures the answer to a command that was sent at `since`.
pub(super) fn answered(carries: &'static str, since: Instant) {
    // Its name and label are composed once, because every command updates it.
    static LABELS: [[Label; 1]; 3] = [
        [Label::from_static_parts("carries", COMMANDS)],
        [Label::from_static_parts("carries", RENEWALS)],
        [Label::from_static_parts("carries", WAKE_UPS)],
    ];
    static ALL: [(&str, Key); 3] = [
        (COMMANDS, Key::from_static_parts(ANSWERED, &LABELS[0])),
        (RENEWALS, Key::from_static_parts(ANSWERED, &LABELS[1])),
        (WAKE_UPS, Key::from_static_parts(ANSWERED, &LABELS[2])),
    ];
    static METADATA: Metadata<'static> =
        Metadata::new(module_path!(), Level::INFO, Some(module_path!()));
    if let Some((_, key)) = ALL.iter().find(|(name, _)| *name == carries) {
        with_recorder(|recorder| recorder.register_histogram(key, &METADATA))
            .record(since.elapsed());
    }
}

/// Counts a command that was not answered.
pub(super) fn unanswered(carries: &'static str) {
    counter!(UNANSWERED, "carries" => carries).increment(1);
}
