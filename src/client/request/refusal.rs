//! Whether a request would be refused, before it asks for its lock.

use tokio::time::{Instant, timeout_at};

use super::LockRequest;
use crate::client::target::Target;
use crate::client::wait::{Wait, over};
use crate::error::LockError;
use crate::lock::Hold;
use crate::store::{HoldStatus, Renewal, undecided};
use crate::table::Side;

impl LockRequest {
    /// Why the request would fail at once, as far as this process knows without a wait.
    pub(crate) fn refusal(&self) -> Result<(), LockError> {
        let refused = self.is_refused();
        if let Err(error) = &refused {
            self.observed(Instant::now()).refused(error);
        }
        refused
    }

    /// Asks the store about the keys, within the wait of the request, and changes nothing.
    ///
    /// # Errors
    ///
    /// `Unavailable` if it does not answer for all of them.
    pub(crate) async fn probe(&self) -> Result<(), LockError> {
        let core = &self.client.inner.core;
        // No hold has this number.
        let id = core.hold_id(0);
        let checks = self.targets().iter().map(|target| {
            let (key, mode) = (target.key.clone(), target.mode_in(self.mode));
            Renewal::check(Hold { key, mode, id })
        });
        let asked = self.client.asked(core.store.renew(checks.collect()));
        let wait = Wait::new(self.terms.wait, Instant::now());
        let statuses = timeout_at(wait.until, asked).await;
        match statuses
            .map_err(|_| over())??
            .contains(&HoldStatus::Unknown)
        {
            true => Err(undecided().into()),
            false => Ok(()),
        }
    }

    fn is_refused(&self) -> Result<(), LockError> {
        let core = &self.client.inner.core;
        if core.closing.is_cancelled() {
            return Err(LockError::Shutdown);
        }
        let is_full = |target: &Target| {
            let side = Side::of(target.mode_in(self.mode));
            let waiting = core.table.read(&target.key, |key| key.waiting(side));
            let waiting = waiting.unwrap_or_default();
            let most = self.terms.max_waiters;
            waiting > 0 && most.is_some_and(|most| waiting >= most)
        };
        match !self.terms.wait.is_zero() && self.targets().iter().any(is_full) {
            true => Err(LockError::Overloaded),
            false => Ok(()),
        }
    }
}
