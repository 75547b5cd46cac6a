//! The store has granted a hold.

use std::mem;
use std::sync::Arc;

use super::Key;
use crate::hold::Held;
use crate::lock::LockMode;
use crate::table::line::{Side, Waiter};
use crate::table::shared::Shared;
use crate::table::wheel::Wheel;
use crate::table::{At, Grant, Out, Terms};

impl Key {
    /// The store has granted a hold, to the request with these terms. Returns its share.
    pub(in crate::table) fn granted(
        &mut self,
        held: &Arc<Held>,
        to: Option<&Terms>,
        wheel: &mut Wheel,
        at: At,
    ) -> (Option<Grant>, Out) {
        let mut out = Out::default();
        let mut shared = Shared::new(held.clone(), at.now);
        let grant = to.map(|terms| shared.join(terms, wheel, at.now));
        self.admit(shared, wheel, at, &mut out);
        (grant, out)
    }

    /// The store has granted a hold for those who wait: the first whom it fits gets it. Returns whether there is one.
    pub(in crate::table) fn given(
        &mut self,
        held: &Arc<Held>,
        fair: Option<u64>,
        wheel: &mut Wheel,
        at: At,
    ) -> (bool, Out) {
        let mut out = Out::default();
        let side = Side::of(held.hold.mode);
        let mut shared = Shared::new(held.clone(), at.now);
        let first = self.line(side).and_then(|line| {
            let mut waiters = line.iter().enumerate();
            let fits = |waiter: &Waiter| {
                fair.is_none_or(|ticket| ticket == waiter.ticket)
                    && waiter.terms.mode == held.hold.mode
                    && shared.fits(&waiter.terms, at.now)
                    && self.is_first_of_owner(waiter)
            };
            waiters
                .find(|(_, waiter)| fits(waiter))
                .map(|(index, _)| index)
        });
        let Some(first) = first else {
            return (false, out);
        };
        let line = self.line_mut(side);
        line.asks = false;
        let waiter = line.give(first, at.now);
        let grant = shared.join(&waiter.terms, wheel, at.now);
        out.tell(waiter.slot, waiter.ticket, Ok(grant));
        self.admit(shared, wheel, at, &mut out);
        (true, out)
    }

    /// A new hold is here: the keeper gets it, the readers that wait enter with it, and so do requests of its owners.
    pub(super) fn admit(&mut self, mut shared: Shared, wheel: &mut Wheel, at: At, out: &mut Out) {
        let mode = shared.held.hold.mode;
        let side = Side::of(mode);
        wheel.place(&shared.held, shared.held.first_visit(at.now));
        let has_lines = self.lines.is_some();
        if has_lines {
            let line = self.line_mut(side);
            line.news(at.now, None);
            if mem::take(&mut line.yields) {
                shared.stay();
            }
            if mode == LockMode::Read {
                let mut index = 0;
                while index < line.len() {
                    if !shared.suits(&line.get(index).terms, at.now) {
                        index += 1;
                        continue;
                    }
                    let waiter = line.give(index, at.now);
                    let grant = shared.join(&waiter.terms, wheel, at.now);
                    out.tell(waiter.slot, waiter.ticket, Ok(grant));
                }
            }
        }
        self.holds.push(shared);
        if has_lines {
            self.join_owners(wheel, at, out);
            self.wake(out);
        }
    }

    /// Requests whose owners have got a hold join it, or learn why they cannot.
    pub(super) fn join_owners(&mut self, wheel: &mut Wheel, at: At, out: &mut Out) {
        for side in Side::ALL {
            let mut index = 0;
            while let Some(waiter) = self.line(side).filter(|line| index < line.len()) {
                let (ticket, terms) = {
                    let waiter = waiter.get(index);
                    if waiter.terms.owner.is_none() {
                        index += 1;
                        continue;
                    }
                    (waiter.ticket, waiter.terms.clone())
                };
                match self.rejoin(&terms, wheel, at.now) {
                    Ok(None) => index += 1,
                    Ok(Some(grant)) => {
                        let waiter = self.line_mut(side).give(index, at.now);
                        out.tell(waiter.slot, ticket, Ok(grant));
                    }
                    Err(error) => {
                        let waiter = self.line_mut(side).remove(ticket);
                        let waiter = waiter.expect("it was there");
                        out.tell(waiter.slot, ticket, Err(error));
                    }
                }
            }
        }
    }
}
