//! Replaces `journal.rs` while the feature `console` is off.

use tokio::time::Instant;

pub(crate) use super::off::Off as Contention;
pub(crate) use super::off::Off as Followed;
pub(crate) use super::off::Off as Journal;
use super::{Labels, Route};
use crate::error::LockError;
use crate::lock::{Hold, LockKey, LockMode};

impl Journal {
    pub(crate) fn follow(&self, _: Option<&LockKey>) -> Followed {
        Self
    }

    pub(crate) fn lost(&self, _: &Route, _: &Hold, _: &'static str) {}

    pub(crate) fn contends(&self, _: &LockKey, _: Instant) -> Contention {
        Self
    }

    pub(super) fn is_on(&self) -> bool {
        false
    }

    pub(super) fn waited(&self, _: &Labels, _: Instant) {}

    pub(super) fn held(&self, _: &Labels, _: Instant) {}

    pub(super) fn refused(&self, _: &Labels, _: &LockError, _: Instant) {}

    pub(crate) fn list<'a>(&mut self, _: impl Iterator<Item = (&'a LockKey, LockMode)>, _: &Route) {
    }
}
