//! A hold ends: it passes to the next request, or is released.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Busy, Key};
use crate::hold::Held;
use crate::store::Released;
use crate::table::line::Side;
use crate::table::wheel::Wheel;
use crate::table::{At, Ended, Holder, Out};

/// How long this process lets others ask first, in a store without a line whose release woke some: as long as a message takes, and up
/// to so much more.
const YIELD: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(3));

impl Key {
    /// A share ends.
    pub(in crate::table) fn ended(
        &mut self,
        held: &Arc<Held>,
        holder: &Holder,
        pass_on: bool,
        releases_later: bool,
        wheel: &mut Wheel,
        at: At,
    ) -> (Ended, Out) {
        let mut out = Out::default();
        let Some(place) = self.place_of(held) else {
            return (Ended::Release { awaited: false }, out);
        };
        if self.holds[place].leave(holder, wheel, at.now) {
            return (Ended::GoesOn, out);
        }
        if pass_on && self.pass(place, wheel, at, &mut out) {
            return (Ended::GoesOn, out);
        }
        self.holds.swap_remove(place);
        wheel.remove(held);
        let mode = held.hold.mode;
        if releases_later && mode.is_handed_over() {
            self.busy.push(Busy {
                number: held.hold.id.number(),
                side: Side::of(mode),
                owner: None,
                since: at.now,
                releases: true,
                yields: None,
            });
        }
        if let Some(lines) = &mut self.lines {
            // This process held the lock until now: that is news for those who wait.
            let line = &mut lines[Side::of(mode) as usize];
            if !mode.is_permit() {
                line.news(at.now, None);
            }
        }
        let awaited = self.lines.is_some() || releases_later && mode.is_handed_over();
        (Ended::Release { awaited }, out)
    }

    /// Passes a hold without shares to the next request, if the limits allow it. After a writer, the waiting readers have the turn.
    pub(super) fn pass(&mut self, place: usize, wheel: &mut Wheel, at: At, out: &mut Out) -> bool {
        let shared = &self.holds[place];
        let mode = shared.held.hold.mode;
        if !mode.is_handed_over() || shared.is_lost() || self.wants(Side::Read) {
            return false;
        }
        let next = self.line(Side::Exclusive).and_then(|line| {
            let mut waiters = line.iter().enumerate();
            waiters.find(|(_, waiter)| self.is_first_of_owner(waiter))
        });
        let Some((index, next)) = next else {
            return false;
        };
        if next.terms.mode != mode || !shared.may_pass_to(&next.terms, at.limits, at.now) {
            return false;
        }
        let waiter = self.line_mut(Side::Exclusive).give(index, at.now);
        let grant = self.holds[place].pass_to(&waiter.terms, wheel, at.now);
        out.tell(waiter.slot, waiter.ticket, Ok(grant));
        if waiter.terms.owner.is_some() {
            self.join_owners(wheel, at, out);
        }
        true
    }

    /// The store has answered a release. If it has woken clients that stand in no line, they get the next turn; in a store without a
    /// line, they ask first, and the release counts as under way until then.
    pub(in crate::table) fn released(
        &mut self,
        held: &Held,
        released: Released,
        now: Instant,
    ) -> Out {
        let mut out = Out::default();
        let number = held.hold.id.number();
        let side = Side::of(held.hold.mode);
        // In a store without a line, this process may be one of those that the release woke.
        let listens = self.line(side).is_some_and(|line| line.listens);
        if released.notified > usize::from(listens && !released.in_line) {
            if self.line(side).is_some_and(|line| !line.is_idle()) {
                self.line_mut(side).yields = true;
            }
            if !released.in_line {
                let pause = YIELD.0 + YIELD.1.mul_f64(fastrand::f64());
                let mut busy = self.busy.iter_mut();
                if let Some(busy) = busy.find(|busy| busy.number == number && busy.releases) {
                    busy.yields = Some(now + pause);
                    out.others().later = Some(pause);
                    self.wake(&mut out);
                    return out;
                }
            }
        }
        self.busy
            .retain(|busy| busy.number != number || !busy.releases);
        self.wake(&mut out);
        out
    }

    /// A hold stays in the store after its end.
    pub(in crate::table) fn stay(&mut self, held: &Arc<Held>) {
        if let Some(place) = self.place_of(held) {
            self.holds[place].stay();
        }
    }

    /// A hold is lost. `None`: it is not here.
    pub(in crate::table) fn lost(&mut self, held: &Arc<Held>, wheel: &mut Wheel) -> Option<Out> {
        let place = self.place_of(held)?;
        self.holds[place].lose();
        wheel.remove(held);
        Some(self.wake_all())
    }
}
