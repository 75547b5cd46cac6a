//! What a console shows of a key.

use super::super::wait_queue::{Head, LocalWaiter, WaitQueue};
use super::KeyState;
use crate::lock::LockMode;

impl KeyState {
    /// Every request that waits in this process.
    pub(in crate::queue) fn waiters(&self) -> impl Iterator<Item = &LocalWaiter> {
        let rest = self.rest.iter();
        rest.flat_map(|rest| {
            let queued = rest.queues().into_iter().flat_map(WaitQueue::iter);
            queued.chain(rest.owners.waiting())
        })
    }

    /// The mode that a request asks the store for now.
    pub(in crate::queue) fn asks(&self) -> Option<LockMode> {
        let rest = self.rest.as_ref();
        match Head::Asking {
            _ if rest.is_some_and(|rest| rest.fair > 0) => Some(LockMode::Fair),
            asking if self.exclusive == asking => Some(LockMode::Reentrant),
            asking if self.write == asking => Some(LockMode::Write),
            asking if self.read == asking => Some(LockMode::Read),
            // Their limit does not matter here.
            _ => rest
                .is_some_and(|rest| !rest.permit.is_idle())
                .then_some(LockMode::permits(1)),
        }
    }
}
