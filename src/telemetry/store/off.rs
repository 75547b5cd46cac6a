//! Replaces `meter.rs` while the feature `console` is off, and `instruments.rs` while `metrics` is off.

use tokio::time::Instant;

use crate::telemetry::off::Off;

pub(super) fn connected(_: &'static str) -> Off {
    Off
}

pub(super) fn failed(_: &'static str) {}

#[cfg(not(feature = "metrics"))]
pub(super) fn failed_over(_: &'static str) {}

#[cfg(not(feature = "metrics"))]
pub(super) fn clock_offset(_: &str, _: f64) {}

pub(super) fn answered(_: &'static str, _: Instant) {}

pub(super) fn unanswered(_: &'static str) {}
