//! What a snapshot shows of a key.

use super::super::wait_queue::{LocalWaiter, WaitQueue};
use super::KeyState;

impl KeyState {
    /// Every request that waits in this process.
    pub(in crate::queue) fn waiters(&self) -> impl Iterator<Item = &LocalWaiter> {
        let queues = self.rest.iter().flat_map(|rest| rest.queues());
        queues.flat_map(WaitQueue::iter)
    }
}
