//! The health of a store: its connections, and their latency. The metrics and the meter of a console have the same
//! numbers.

use tokio::time::Instant;

#[cfg(feature = "metrics")]
mod instruments;
#[cfg(feature = "console")]
mod meter;
#[cfg(not(all(feature = "metrics", feature = "console")))]
mod off;

#[cfg(not(feature = "metrics"))]
use super::off::Off as GaugedUp;
#[cfg(not(feature = "console"))]
use super::off::Off as MeteredUp;
#[cfg(feature = "metrics")]
use instruments::GaugedUp;
#[cfg(feature = "metrics")]
pub(super) use instruments::describe_each;
#[cfg(feature = "console")]
use meter::MeteredUp;
#[cfg(feature = "console")]
pub(crate) use meter::{connection_uses, watch};
#[cfg(not(feature = "metrics"))]
use off as instruments;
#[cfg(not(feature = "console"))]
use off as meter;

/// The uses of a connection.
pub(crate) const COMMANDS: &str = "commands";
pub(crate) const RENEWALS: &str = "renewals";
pub(crate) const WAKE_UPS: &str = "wake-ups";

/// A connection that is up.
pub(crate) struct ConnectionUp {
    _gauged: GaugedUp,
    _metered: MeteredUp,
}

/// Counts a connection, which is up until the returned value is dropped.
pub(crate) fn connected(carries: &'static str) -> ConnectionUp {
    ConnectionUp {
        _gauged: instruments::connected(carries),
        _metered: meter::connected(carries),
    }
}

/// Counts a connection that could not be opened.
pub(crate) fn failed(carries: &'static str) {
    instruments::failed(carries);
    meter::failed(carries);
}

/// Counts a failover that this process has seen, by the kind of `deployment`.
pub(crate) fn failed_over(deployment: &'static str) {
    instruments::failed_over(deployment);
}

/// Measures how far the clock of a server is ahead of this process's. Negative: behind.
pub(crate) fn clock_offset(server: &str, seconds: f64) {
    instruments::clock_offset(server, seconds);
}

/// Measures the answer to a command that was sent at `since`.
pub(crate) fn answered(carries: &'static str, since: Instant) {
    instruments::answered(carries, since);
    meter::answered(carries, since);
}

/// Counts a command that was not answered.
pub(crate) fn unanswered(carries: &'static str) {
    instruments::unanswered(carries);
    meter::unanswered(carries);
}
