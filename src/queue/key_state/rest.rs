//! The state that most keys do not need.

use super::super::counts::Counts;
use super::super::hold::LocalHold;
use super::super::permits::PermitQueue;
use super::super::wait_queue::WaitQueue;
use crate::lock::LockMode;

/// The state that only a contended key needs, or one with owners, permits or a fair queue.
#[derive(Default)]
pub(super) struct Rest {
    /// The holds beside the first.
    pub(super) holds: Vec<LocalHold>,
    pub(super) exclusive: WaitQueue,
    pub(super) write: WaitQueue,
    pub(super) read: WaitQueue,
    pub(super) permit: PermitQueue,
    /// The number of `Fair` requests that ask the store, where each has its own place.
    pub(super) fair: usize,
    /// The owners of the requests, and of the releases of nested reads, that are under way.
    ///
    /// While one of them is, further requests of its owner wait in `siblings`, in every mode. Otherwise one of them would be
    /// granted, and the others would wait for their own owner. Nested reads, which all have the id of the write above them, would
    /// release each other.
    pub(super) owners: Counts<u64>,
    pub(super) siblings: WaitQueue,
}

impl Rest {
    pub(super) fn is_idle(&self) -> bool {
        self.holds.is_empty()
            && self.fair == 0
            && self.owners.is_empty()
            && self.permit.is_idle()
            && self.queues().iter().all(|queue| queue.is_empty())
    }

    /// Whether it is as if it had just been made.
    pub(super) fn is_empty(&self) -> bool {
        self.is_idle() && self.queues().iter().all(|queue| queue.has_not_waited())
    }

    pub(super) fn queues(&self) -> [&WaitQueue; 5] {
        [
            &self.exclusive,
            &self.write,
            &self.read,
            &self.permit.queue,
            &self.siblings,
        ]
    }

    pub(super) fn queue(&mut self, mode: LockMode) -> &mut WaitQueue {
        match mode {
            LockMode::Reentrant | LockMode::Fair => &mut self.exclusive,
            LockMode::Write => &mut self.write,
            LockMode::Read => &mut self.read,
            LockMode::Permit(_) => &mut self.permit.queue,
        }
    }
}
