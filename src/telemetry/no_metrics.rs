//! Replaces `metrics.rs` while the feature is off.

use std::time::Duration;

use tokio::time::Instant;

pub(super) use super::off::Off as Counted;
pub(super) use super::off::Off as Gauges;
use super::{Labels, Route};
use crate::audit::Audit;
use crate::error::LockError;
use crate::lock::LockMode;

pub(super) const ENABLED: bool = false;

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

pub(crate) fn confirmed(Labels(_route, _mode): &Labels, _: &'static str) {}

pub(super) fn lost(_: &Route, _: &'static str) {}

pub(crate) fn handed_over(_: &Route, _: LockMode) {}

pub(crate) fn audited(_: &Audit) {}

pub(super) fn renewal(_: &Route, _: &'static str, _: &'static str) {}

pub(crate) fn renewals_ended(_: &'static str, _: Instant) {}

pub(super) fn renewal_lag(_: &Route, _: &'static str, _: impl FnOnce() -> Duration) {}

pub(crate) fn idempotent_request(_: &Route, _: &'static str) {}

pub(crate) fn idempotent_response(_: &Route, _: &'static str) {}
