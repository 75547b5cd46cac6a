//! How long a request waits.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::{LockError, StoreError, StoreErrorKind};
use crate::limits::ONE_TRY;

/// The wait of one caller.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    /// Zero: one attempt.
    max_wait: Duration,
    pub(super) until: Instant,
}

impl Wait {
    pub(super) fn new(max_wait: Duration, now: Instant) -> Self {
        let budget = match max_wait.is_zero() {
            true => ONE_TRY,
            false => max_wait,
        };
        Self {
            max_wait,
            until: now + budget,
        }
    }

    pub(super) fn is_one_try(self) -> bool {
        self.max_wait.is_zero()
    }

    pub(super) fn is_over(self) -> bool {
        Instant::now() >= self.until
    }

    /// The same, which ends at `until` if that is earlier.
    pub(super) fn no_later_than(self, until: Instant) -> Self {
        Self {
            until: self.until.min(until),
            ..self
        }
    }
}

/// The error after the time-out, if the store never answered.
pub(super) fn over() -> LockError {
    let why = "the wait was over before the store answered";
    StoreError::new(StoreErrorKind::Unanswered, why).into()
}
