//! Replaces `metrics.rs` while the feature is off.

use std::time::Duration;

use tokio::time::Instant;

use super::Route;
use crate::audit::Audit;
use crate::error::LockError;

pub(super) const ENABLED: bool = false;

pub(crate) fn describe() {}

#[derive(Clone, Copy)]
pub(super) struct Gauges;

impl Gauges {
    pub(super) fn of(_: &Route, _: &'static str) -> Self {
        Self
    }

    pub(super) fn waiter(self) -> Counted {
        Counted
    }

    pub(super) fn holder(self) -> Counted {
        Counted
    }

    pub(super) fn waited(self, _: Instant) {}

    pub(super) fn held(self, _: Instant) {}
}

pub(super) struct Counted;

pub(super) fn refused(_: &Route, _: &'static str, _: &LockError) {}

pub(super) fn confirmed(_: &Route, _: &'static str, _: &'static str) {}

pub(super) fn lost(_: &Route, _: &'static str) {}

pub(super) fn handed_over(_: &Route, _: &'static str) {}

pub(super) fn audited(_: &Audit) {}

pub(super) fn renewal(_: &Route, _: &'static str, _: &'static str) {}

pub(super) fn renewal_time(_: &'static str, _: Instant) {}

pub(super) fn renewal_lag(_: &Route, _: &'static str, _: impl FnOnce() -> Duration) {}

pub(crate) fn idempotent_request(_: &Route, _: &'static str) {}

pub(crate) fn idempotent_response(_: &Route, _: &'static str) {}
