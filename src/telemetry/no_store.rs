//! What stands for `store.rs` while the feature `metrics` is off.

use tokio::time::Instant;

pub(crate) const COMMANDS: &str = "commands";
pub(crate) const RENEWALS: &str = "renewals";
pub(crate) const WAKE_UPS: &str = "wake-ups";

pub(crate) struct Up;

pub(crate) fn connected(_: &'static str) -> Up {
    Up
}

pub(crate) fn failed(_: &'static str) {}

pub(crate) fn answered(_: &'static str, _: Instant) {}

pub(crate) fn unanswered(_: &'static str) {}
