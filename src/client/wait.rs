//! How long a request waits, and when it asks again.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::{LockError, StoreError, StoreErrorKind};
use crate::store::Wakeups;

/// The longest sleep between two questions: what a lost wake-up costs at most.
const POLL: Duration = Duration::from_secs(1);

/// The pause before asking a store again that cannot serve just now.
const TRANSIENT_PAUSE: Duration = Duration::from_millis(50);

/// How long a single try may take when the caller does not want to wait.
const ONE_TRY: Duration = Duration::from_secs(2);

/// How long a caller waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    /// Zero: one try.
    pub(super) patience: Duration,
    pub(super) until: Instant,
}

impl Wait {
    /// What the store may take for an answer: less of a wait than this is no chance.
    pub(super) const LAST_MOMENT: Duration = Duration::from_millis(100);

    pub(super) fn new(patience: Duration, now: Instant) -> Self {
        let budget = match patience.is_zero() {
            true => ONE_TRY,
            false => patience,
        };
        Self {
            patience,
            until: now + budget,
        }
    }

    pub(super) fn is_one_try(self) -> bool {
        self.patience.is_zero()
    }

    pub(super) fn is_over(self) -> bool {
        Instant::now() >= self.until
    }

    /// When to ask again, after a refusal with this hint, if nothing wakes the request before.
    pub(super) fn next_poll(self, retry_after: Duration) -> Instant {
        // One more millisecond: the store rounds its remaining time down.
        let pause = jittered(POLL).min(retry_after.saturating_add(Duration::from_millis(1)));
        self.until.min(Instant::now() + pause)
    }
}

/// Until a wake-up (`true`), or the end of the time (`false`).
pub(super) async fn sleep_until(wakeups: Option<&mut Wakeups>, until: Instant) -> bool {
    let asleep = tokio::time::sleep_until(until);
    match wakeups {
        Some(wakeups) => tokio::select! {
            biased; // without chance, a simulation replays
            () = wakeups.wait() => true,
            () = asleep => false,
        },
        None => {
            asleep.await;
            false
        }
    }
}

/// How often in a row the store has failed.
#[derive(Default)]
pub(super) struct Failures(u32);

impl Failures {
    /// Whether the store is to be asked again after `error`: once if it cannot be reached or does not answer, for as long
    /// as the wait lasts if it says that it cannot serve just now; then after a pause.
    pub(super) async fn allow_another(&mut self, error: &StoreError, wait: Wait) -> bool {
        self.0 += 1;
        let again = match error.kind() {
            StoreErrorKind::Unanswered
            | StoreErrorKind::Unreachable
            | StoreErrorKind::Unacknowledged => self.0 < 2,
            StoreErrorKind::Transient if !wait.is_one_try() => {
                let pause = Instant::now() + jittered(TRANSIENT_PAUSE);
                tokio::time::sleep_until(pause.min(wait.until)).await;
                true
            }
            StoreErrorKind::Transient => false,
            StoreErrorKind::Refused | StoreErrorKind::Conflict => false,
        };
        again && !wait.is_one_try() && !wait.is_over()
    }
}

/// Why the wait is over: another holder has the lock, as far as that is `known`, or the store never said.
pub(super) fn over(known: Option<Duration>) -> LockError {
    match known {
        Some(retry_after) => LockError::Busy {
            retry_after: Some(retry_after),
        },
        None => StoreError::new(
            StoreErrorKind::Unanswered,
            "the wait was over before the store answered",
        )
        .into(),
    }
}

/// Between three quarters and all of `longest`, so that requests that were refused together do not ask together for ever.
fn jittered(longest: Duration) -> Duration {
    longest.mul_f64(0.75 + fastrand::f64() / 4.0)
}
