//! What a console shows of a key.

use super::super::wait_queue::{LocalWaiter, WaitQueue};
use super::KeyState;
use crate::lock::LockMode;

impl KeyState {
    /// Every request that waits in this process.
    pub(in crate::queue) fn waiters(&self) -> impl Iterator<Item = &LocalWaiter> {
        let queues = self.rest.iter().flat_map(|rest| rest.queues());
        queues.flat_map(WaitQueue::iter)
    }

    /// The mode that a request asks the store for now.
    pub(in crate::queue) fn asks(&self) -> Option<LockMode> {
        let rest = self.rest.as_ref();
        match () {
            () if rest.is_some_and(|rest| rest.fair > 0) => Some(LockMode::Fair),
            () if self.exclusive.is_in_store() => Some(LockMode::Reentrant),
            () if self.write.is_in_store() => Some(LockMode::Write),
            () if self.read.is_in_store() => Some(LockMode::Read),
            // Their limit does not matter here.
            () => rest
                .is_some_and(|rest| !rest.permit.is_idle())
                .then_some(LockMode::permits(1)),
        }
    }
}
