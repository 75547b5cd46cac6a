//! The order of requests with the same owner.

use super::small_map::SmallMap;
use super::wait_queue::LocalWaiter;
use crate::lock::Owner;

/// The owners that have a request under way for the key.
///
/// While one request of an owner is undecided, further requests of that owner wait for it, in every mode. Otherwise
/// one of them would be granted, and the others would wait for their own owner. Nested reads, which all have the id of
/// the write above them, would release each other.
///
/// An owner is listed from [`begin`](Self::begin) to the [`end`](Self::end) of the last request that began.
#[derive(Default)]
pub(super) struct OwnerRequests(SmallMap<u64, OwnerRequest>);

#[derive(Default)]
struct OwnerRequest {
    /// The number of requests of the owner, and of releases of nested reads, that are under way.
    count: usize,
    waiters: Vec<LocalWaiter>,
}

impl OwnerRequests {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn begin(&mut self, owner: &Owner) {
        let requests = &mut self.0;
        let one = requests.get_or_insert_with(owner.number(), OwnerRequest::default);
        one.count += 1;
    }

    /// Ends a request that began. After the last one, returns the requests that waited for the owner.
    pub(super) fn end(&mut self, owner: &Option<Owner>) -> Option<Vec<LocalWaiter>> {
        let owner = owner.as_ref()?.number();
        let one = self.0.get_mut(owner)?;
        one.count -= 1;
        match one.count {
            0 => self.0.remove(owner).map(|one| one.waiters),
            _ => None,
        }
    }

    /// The requests that wait for another one of this owner; `None` if the owner has no request under way.
    pub(super) fn waiters(&mut self, owner: &Option<Owner>) -> Option<&mut Vec<LocalWaiter>> {
        let one = self.0.get_mut(owner.as_ref()?.number());
        one.map(|one| &mut one.waiters)
    }

    /// All requests that wait for another request of their owner.
    #[cfg(feature = "console")]
    pub(super) fn waiting(&self) -> impl Iterator<Item = &LocalWaiter> {
        self.0.values().flat_map(|one| &one.waiters)
    }

    pub(super) fn remove(&mut self, owner: &Option<Owner>, ticket: u64) -> Option<LocalWaiter> {
        let waiters = self.waiters(owner)?;
        let place = waiters.iter().position(|waiter| waiter.ticket == ticket)?;
        Some(waiters.remove(place))
    }
}
