//! The store has granted a hold.

use std::mem;
use std::sync::Arc;

use tokio::time::Instant;

use super::{InStore, KeyAt};
use crate::hold::Held;
use crate::lock::LockMode;
use crate::table::line::{Side, Waiter};
use crate::table::shared::Shared;
use crate::table::{NewShare, Terms};

/// How many times a hold is handed over where clients outside of the line wait. Redisson's take the lock several times in a row: without
/// any, a process of ours would have a sixth of the sections beside them (the benches' section `mixed`). With one, a client outside that is
/// alone has a third.
const BESIDE_OTHERS: u32 = 1;

impl KeyAt<'_> {
    /// The store has granted the request `number`, which asked. Its share is returned; others may get shares too.
    ///
    /// # Errors
    ///
    /// The hold, if the client is shut down: it is not kept here, and must be released.
    pub(crate) fn granted(
        &mut self,
        number: u64,
        held: Arc<Held>,
        terms: &Terms,
    ) -> Result<NewShare, Arc<Held>> {
        self.key.no_more_asking(number);
        if self.closed {
            return Err(held);
        }
        let mut shared = Shared::new(held, self.now);
        let (grant, visit) = shared.grant_to(terms);
        self.admit(shared, visit);
        Ok(grant)
    }

    /// The store has granted a hold for those who wait: the first whom it fits gets it, even if an earlier request asks the store itself.
    /// Returns `false` if there is none: it must be released.
    pub(crate) fn given(&mut self, held: &Arc<Held>, fair: Option<u64>) -> bool {
        if self.closed {
            return false;
        }
        let side = Side::of(held.hold.mode);
        let mut shared = Shared::new(held.clone(), self.now);
        let first = self.key.line(side).and_then(|line| {
            let fits = |waiter: &Waiter| {
                fair.is_none_or(|ticket| ticket == waiter.ticket)
                    && waiter.terms.mode == held.hold.mode
                    && shared.fits(&waiter.terms, self.now)
                    && self.key.is_first_of_owner(waiter, self.now)
            };
            line.iter().position(fits)
        });
        let Some(first) = first else {
            return false;
        };
        let line = self.key.line_mut(side);
        line.asks = None;
        let waiter = line.give(first, self.now);
        let (grant, visit) = shared.grant_to(&waiter.terms);
        self.out.tell(waiter.slot, waiter.ticket, Ok(grant));
        self.admit(shared, visit);
        true
    }

    /// A new hold is here: the keeper visits it, the readers that wait enter with it, and so do requests of its owners.
    fn admit(&mut self, mut shared: Shared, visit: Instant) {
        let mode = shared.held.hold.mode;
        self.wheel.place(&shared.held, visit);
        if self.key.lines.is_none() {
            self.key.in_store.push(InStore::Held(shared));
            return;
        }
        let line = self.key.line_mut(Side::of(mode));
        line.news(self.now, None);
        if mem::take(&mut line.yields) {
            shared.limit_handovers(BESIDE_OTHERS, self.limits.handovers);
        }
        if mode == LockMode::Read {
            let mut index = 0;
            while index < line.len() {
                if !shared.admits(&line.get(index).terms, self.now) {
                    index += 1;
                    continue;
                }
                let waiter = line.give(index, self.now);
                let grant = shared.join(&waiter.terms.owner);
                self.out.tell(waiter.slot, waiter.ticket, Ok(grant));
            }
        }
        let held = shared.held.clone();
        self.key.in_store.push(InStore::Held(shared));
        self.join_owners(&held);
        self.wake();
    }

    /// Requests whose owners have got a share of `held` join it, or learn why they cannot.
    pub(super) fn join_owners(&mut self, held: &Arc<Held>) {
        let Some(place) = self.key.place_of(held) else {
            return;
        };
        for side in Side::ALL {
            let mut index = 0;
            while let Some(line) = self.key.line(side).filter(|line| index < line.len()) {
                let waiter = line.get(index);
                let owner = waiter.terms.owner.as_ref();
                if !owner.is_some_and(|owner| self.key.is_shared_by(place, owner)) {
                    index += 1;
                    continue;
                }
                let (ticket, terms) = (waiter.ticket, waiter.terms.clone());
                match self.rejoin(&terms) {
                    Ok(None) => index += 1,
                    Ok(Some(grant)) => {
                        let waiter = self.key.line_mut(side).give(index, self.now);
                        self.out.tell(waiter.slot, ticket, Ok(grant));
                    }
                    Err(error) => {
                        let waiter = self.key.line_mut(side).remove(ticket);
                        let waiter = waiter.expect("it was there");
                        self.out.tell(waiter.slot, ticket, Err(error));
                    }
                }
            }
        }
    }
}
