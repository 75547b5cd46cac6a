//! How long a request waits, and when it asks the store again.

use std::mem;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::question::Wanted;
use crate::backoff::jittered;
use crate::cleanup::ANSWER_TIME;
use crate::error::{LockError, StoreError, StoreErrorKind};
use crate::store::Wakeups;

/// The longest sleep between two questions. A lost wake-up costs at most this.
pub(super) const POLL: Duration = Duration::from_secs(1);

/// The pause before the next question to a store that cannot serve now.
const TRANSIENT_PAUSE: Duration = Duration::from_millis(50);

/// How long the single attempt of a caller that does not wait may take.
const ONE_TRY: Duration = Duration::from_secs(2);

/// The wait of one caller.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    /// Zero: one attempt.
    pub(super) max_wait: Duration,
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

    /// The same, which ends at `until` if that is earlier.
    pub(super) fn no_later_than(self, until: Instant) -> Self {
        Self {
            until: self.until.min(until),
            ..self
        }
    }

    /// What a request for one key needs.
    pub(super) fn for_one(self) -> Wanted {
        Wanted::One {
            patience: (!self.is_one_try()).then_some(self.max_wait),
        }
    }

    /// When a request looks for the first time what keeps it waiting in the process. It reads no clock.
    pub(super) fn first_look(self) -> Instant {
        self.until - self.max_wait + ANSWER_TIME
    }

    pub(super) fn is_over(self) -> bool {
        Instant::now() >= self.until
    }

    /// When to ask again after a refusal at `refused` with this hint, unless a wake-up comes first.
    pub(super) fn next_poll(self, refused: Instant, retry_after: Duration) -> Instant {
        // One more millisecond, because the store rounds the remaining time down.
        let pause = jittered(POLL).min(retry_after.saturating_add(Duration::from_millis(1)));
        self.until.min(refused + pause)
    }
}

/// Sleeps until a wake-up (`true`), or until the time or the subscription is over (`false`).
pub(super) async fn sleep_until(wakeups: Option<&mut Wakeups>, until: Instant) -> bool {
    match wakeups {
        Some(wakeups) => timeout_at(until, wakeups.wait()).await.unwrap_or(false),
        None => {
            tokio::time::sleep_until(until).await;
            false
        }
    }
}

/// The failures of a request's questions in a row.
#[derive(Default)]
pub(super) struct Failures {
    /// The store gave no answer, and was asked again. Any answer resets it, also that it cannot serve now.
    asked_again: bool,
}

impl Failures {
    /// Whether to ask the store again after `error`. An unreachable or silent store is asked once more. A store that
    /// cannot serve now, or whose replicas do not acknowledge, is asked again after a pause, for as long as the wait lasts.
    pub(super) async fn allow_another(&mut self, error: &StoreError, wait: Wait) -> bool {
        let again = match error.kind() {
            StoreErrorKind::Unanswered | StoreErrorKind::Unreachable => {
                !mem::replace(&mut self.asked_again, true)
            }
            // What too few replicas acknowledged was withdrawn: they may be back when the failover is over.
            StoreErrorKind::Transient | StoreErrorKind::Unacknowledged if !wait.is_one_try() => {
                self.asked_again = false;
                let pause = Instant::now() + jittered(TRANSIENT_PAUSE);
                tokio::time::sleep_until(pause.min(wait.until)).await;
                true
            }
            StoreErrorKind::Transient
            | StoreErrorKind::Unacknowledged
            | StoreErrorKind::Refused
            | StoreErrorKind::Conflict => false,
        };
        again && !wait.is_one_try() && !wait.is_over()
    }
}

/// The error after the time-out: another holder has the lock if `known` is set, otherwise the store never answered.
pub(super) fn over(known: Option<Duration>) -> LockError {
    match known {
        Some(_) => LockError::Busy { retry_after: known },
        None => StoreError::new(
            StoreErrorKind::Unanswered,
            "the wait was over before the store answered",
        )
        .into(),
    }
}

/// The error if the store granted a hold that was over before its answer came.
pub(super) fn answered_late() -> StoreError {
    StoreError::new(
        StoreErrorKind::Unanswered,
        "the store's answer took longer than the lease",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A failover: the old master refuses, and then closes the connection.
    #[tokio::test(start_paused = true)]
    async fn a_store_that_cannot_be_reached_after_it_could_not_serve_is_asked_once_more() {
        let wait = Wait::new(Duration::from_secs(10), Instant::now());
        let mut failures = Failures::default();
        let [busy, gone] = [StoreErrorKind::Transient, StoreErrorKind::Unreachable]
            .map(|kind| StoreError::new(kind, "a failover"));
        for (error, again) in [(&busy, true), (&busy, true), (&gone, true), (&gone, false)] {
            assert_eq!(failures.allow_another(error, wait).await, again, "{error}");
        }
    }
}
