//! Whether a request would be refused, before it asks for its lock.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::LockRequest;
use crate::client::wait::{Wait, over};
use crate::error::LockError;
use crate::lock::{Hold, ResourceKey};
use crate::store::{HoldStatus, Renewal, undecided};
use crate::table::Side;

impl LockRequest {
    /// Why the request would fail at once, as far as this process knows without a wait.
    pub(crate) fn refusal(&self) -> Result<(), LockError> {
        let refused = self.is_refused();
        refused.inspect_err(|error| self.report(error, Instant::now()))
    }

    /// Reports an error as the end of a wait that began then.
    pub(crate) fn report(&self, error: &LockError, began: Instant) {
        self.refused(self.observed(began), error, began);
    }

    /// Whether it waits: otherwise it tries once.
    pub(crate) fn waits(&self) -> bool {
        !self.terms.wait.is_zero()
    }

    /// Asks the store about the keys of a request that waits, and changes nothing. What the answer took is no longer a part of its wait,
    /// and returned.
    ///
    /// # Errors
    ///
    /// `Unavailable`, which is reported, if the store does not answer for all keys within the wait.
    pub(crate) async fn probe(&mut self) -> Result<Duration, LockError> {
        let began = Instant::now();
        let wait = Wait::new(self.terms.wait, began);
        let core = &self.client.inner.core;
        // No hold has this number.
        let id = core.hold_id(0);
        let checks = self.targets().iter().map(|target| {
            let (key, mode) = (target.key().clone(), target.mode_in(self.mode));
            Renewal::check(Hold { key, mode, id })
        });
        let asked = self.client.asked(core.store.renew(checks.collect()));
        let answer = match timeout_at(wait.until, asked).await {
            Ok(Ok(statuses)) if statuses.contains(&HoldStatus::Unknown) => Err(undecided().into()),
            Ok(answer) => answer.map_err(LockError::from),
            Err(_) => Err(over()),
        };
        answer.inspect_err(|error| self.report(error, began))?;
        let took = began.elapsed();
        // Zero would be one try, which has a time of its own.
        let left = self.terms.wait.saturating_sub(took);
        self.terms.wait = left.max(Duration::from_millis(1));
        Ok(took)
    }

    fn is_refused(&self) -> Result<(), LockError> {
        let core = &self.client.inner.core;
        if core.closing.is_cancelled() {
            return Err(LockError::Shutdown);
        }
        let is_full = |target: &ResourceKey| {
            let side = Side::of(target.mode_in(self.mode));
            let waiting = core.table.read(target.key(), |key| key.waiting(side));
            let waiting = waiting.unwrap_or_default();
            let most = self.terms.max_waiters;
            waiting > 0 && most.is_some_and(|most| waiting >= most)
        };
        match self.waits() && self.targets().iter().any(is_full) {
            true => Err(LockError::Overloaded),
            false => Ok(()),
        }
    }
}
