//! The health of a store: its connections, and their latency. The metrics and the meter of a console have the same
//! numbers.

use tokio::time::Instant;

// Only a console reads it.
#[cfg_attr(not(feature = "console"), allow(dead_code))]
pub(crate) mod meter;

pub(crate) use super::connection_use::{COMMANDS, RENEWALS, WAKE_UPS};
use super::metrics::{Counted, store as metrics};
use meter::MeteredUp;
pub(crate) use metrics::{clock_offset, failed_over};

/// A connection that is up.
pub(crate) struct ConnectionUp {
    _gauged: Counted,
    _metered: MeteredUp,
}

/// Counts a connection, which is up until the returned value is dropped.
pub(crate) fn connected(carries: &'static str) -> ConnectionUp {
    ConnectionUp {
        _gauged: metrics::connected(carries),
        _metered: meter::connected(carries),
    }
}

/// Counts a connection that could not be opened.
pub(crate) fn failed(carries: &'static str) {
    metrics::failed(carries);
    meter::failed(carries);
}

/// Measures the answer to a command that was sent at `since`.
pub(crate) fn answered(carries: &'static str, since: Instant) {
    metrics::answered(carries, since);
    meter::answered(carries, since);
}

/// Counts a command that was not answered.
pub(crate) fn unanswered(carries: &'static str) {
    metrics::unanswered(carries);
    meter::unanswered(carries);
}
