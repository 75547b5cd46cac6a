//! Replaces `meter.rs` while the feature `console` is off, and `instruments.rs` while `metrics` is off.

use tokio::time::Instant;

pub(super) use crate::telemetry::off::Off as Up;

pub(super) fn connected(_: &'static str) -> Up {
    Up
}

pub(super) fn failed(_: &'static str) {}

#[cfg(not(feature = "metrics"))]
pub(super) fn failed_over(_: &'static str) {}

#[cfg(not(feature = "metrics"))]
pub(super) fn clock_offset(_: &str, _: f64) {}

pub(super) fn answered(_: &'static str, _: Instant) {}

pub(super) fn unanswered(_: &'static str) {}
