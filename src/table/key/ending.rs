//! A hold ends: it passes to the next request, or is released.

use std::sync::Arc;
use std::time::Duration;

use super::{Asks, Busy, InStore, KeyAt};
use crate::hold::Held;
use crate::limits::ANSWER_TIME;
use crate::lock::Owner;
use crate::store::Released;
use crate::table::ShareEnd;
use crate::table::line::Side;

/// How long this process lets others ask first, in a store without a line whose release woke some: as long as a message takes, and up
/// to so much more.
const YIELD: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(3));

impl KeyAt<'_> {
    /// A share ends. Unless `pass_on`, the last one releases the hold: it is not handed over, nor left until its minimum is over.
    pub(crate) fn ended(
        &mut self,
        held: &Arc<Held>,
        owner: Option<&Owner>,
        pass_on: bool,
    ) -> ShareEnd {
        let Some(shared) = self.key.hold_mut(held) else {
            return ShareEnd::default();
        };
        // Others have no minimum: their mutex is not taken.
        let may_stay = pass_on && shared.is_last_here();
        if shared.leave(owner) || pass_on && self.pass(held) {
            return ShareEnd::GoesOn;
        }
        self.key.forget(held);
        self.wheel.remove(held);
        let mode = held.hold.mode;
        if self.key.lines.is_some() && !mode.is_permit() {
            // This process held the lock until now: that is news for those who wait.
            self.key.line_mut(Side::of(mode)).news(self.now, None);
        }
        if may_stay && let Some(until) = held.leave(self.now) {
            self.wheel.place(held, until);
            self.wake();
            return ShareEnd::GoesOn;
        }
        let is_awaited = self.releases_later && mode.is_handed_over();
        if is_awaited {
            self.key.in_store.push(InStore::Busy(Busy {
                number: held.hold.id.number(),
                owner: None,
                side: Side::of(mode),
                asks: Asks::ForRelease,
                until: self.now + ANSWER_TIME,
            }));
        }
        let awaited = self.key.lines.is_some() || is_awaited;
        ShareEnd::Release { awaited }
    }

    /// Passes a hold without shares to the next request, if the limits allow it. After a writer, the waiting readers have the turn.
    fn pass(&mut self, held: &Arc<Held>) -> bool {
        let key = &mut *self.key;
        let mode = held.hold.mode;
        if !mode.is_handed_over() || key.lines.is_none() || key.wants(Side::Read, self.now) {
            return false;
        }
        let next = key.line(Side::Exclusive).and_then(|line| {
            let mut waiters = line.iter().enumerate();
            waiters.find(|(_, waiter)| key.is_first_of_owner(waiter, self.now))
        });
        let Some((index, next)) = next else {
            return false;
        };
        let may_pass = key.holds().any(|shared| {
            Arc::ptr_eq(&shared.held, held)
                && shared.may_pass_to(&next.terms, self.limits, self.now)
        });
        if next.terms.mode != mode || !may_pass {
            return false;
        }
        let waiter = key.line_mut(Side::Exclusive).give(index, self.now);
        let shared = key.hold_mut(held).expect("it is there");
        let grant = shared.pass_to(&waiter.terms, self.wheel, self.now);
        self.out.tell(waiter.slot, waiter.ticket, Ok(grant));
        if waiter.terms.owner.is_some() {
            self.join_owners(held);
        }
        true
    }

    /// The store has answered the release of a hold, or will not. If it has woken clients that stand in no line, they get the next turn.
    /// In a store without a line, they ask first, and the release counts as under way for the time that is returned: then the same
    /// event comes again.
    pub(crate) fn released(&mut self, held: &Held, released: Released) -> Option<Duration> {
        let number = held.hold.id.number();
        let side = Side::of(held.hold.mode);
        // In a store without a line, this process may be one of those that the release woke.
        let listens = self.key.line(side).is_some_and(|line| line.listens);
        let mut pause = None;
        if released.notified > usize::from(listens && !released.in_line) {
            if self.key.line(side).is_some_and(|line| !line.is_idle()) {
                self.key.line_mut(side).yields = true;
            }
            if !released.in_line
                && let Some(busy) = self.key.release_mut(number)
            {
                let yields = YIELD.0 + YIELD.1.mul_f64(fastrand::f64());
                (busy.asks, busy.until) = (Asks::Yields, self.now + yields);
                pause = Some(yields);
            }
        }
        if pause.is_none() {
            self.key
                .answered(|busy| busy.number == number && busy.asks != Asks::ForHold);
        }
        self.wake();
        pause
    }

    /// A hold is released at its end, and not handed over.
    pub(crate) fn forbid_handover(&mut self, held: &Arc<Held>) {
        if let Some(shared) = self.key.hold_mut(held) {
            shared.forbid_handover();
        }
    }

    /// A hold is lost: no request waits for its shares any more. It is not here if its last share has ended.
    pub(crate) fn lost(&mut self, held: &Arc<Held>) {
        if let Some(shared) = self.key.hold_mut(held) {
            shared.lose();
            self.wheel.remove(held);
            self.wake();
        }
    }
}
