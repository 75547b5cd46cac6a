//! Replaces `metrics.rs` while the feature is off.

use std::time::Duration;

use tokio::time::Instant;

use super::{Labels, Route};
use crate::audit::Audit;
use crate::error::LockError;
use crate::lock::LockMode;

pub(super) const ENABLED: bool = false;

/// Stands for each type of the feature, and does nothing.
#[derive(Clone, Copy)]
pub(crate) struct Off;

pub(crate) use Off as Counted;
pub(super) use Off as Gauges;

pub(crate) fn describe() {}

impl Gauges {
    pub(super) fn of(_: &Labels) -> Self {
        Self
    }

    pub(super) fn waiter(self) -> Counted {
        self
    }

    pub(super) fn holder(self) -> Counted {
        self
    }

    pub(super) fn record_wait(self, _: Instant) {}

    pub(super) fn record_hold(self, _: Instant) {}
}

pub(super) fn refused(_: &Labels, _: &LockError) {}

pub(crate) fn confirmed(_: &Labels, _: &'static str) {}

pub(super) fn lost(_: &Route, _: &'static str, _: &'static str) {}

pub(crate) fn handed_over(_: &Route, _: LockMode) {}

pub(crate) fn audited(_: &Audit) {}

pub(crate) fn renewed(_: &Route, _: LockMode, _: impl FnOnce() -> Duration) {}

pub(crate) fn not_renewed(_: &Route, _: LockMode, _: &'static str) {}

pub(crate) fn idempotent_request(_: &Route, _: &'static str) {}

pub(crate) fn idempotent_response(_: &Route, _: &'static str) {}

#[cfg(feature = "redis")]
pub(super) mod store {
    use super::{Counted, Instant};

    pub(crate) fn connected(_: &'static str) -> Counted {
        Counted
    }

    pub(crate) fn failed(_: &'static str) {}

    pub(crate) fn failed_over(_: &'static str) {}

    pub(crate) fn clock_offset(_: String, _: f64) {}

    pub(crate) fn answered(_: &'static str, _: Instant) {}

    pub(crate) fn unanswered(_: &'static str) {}
}
