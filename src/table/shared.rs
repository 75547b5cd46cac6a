//! A hold of this process, and its shares.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::wheel::Wheel;
use super::{NewShare, Terms};
use crate::hold::Held;
use crate::lock::{Lease, LockMode, Owner};
use crate::telemetry::Route;

/// A hold of this process.
///
/// It is here from its grant until its last share ends. Then it passes to the next request, or is released in the store. Its longest
/// hold is that of the request which it was granted or passed to, and counts from then; a request that joins takes it as it is.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) held: Arc<Held>,
    pub(super) granted: Instant,
    /// The owners that share it, in the order of their numbers, and how many shares each has. Requests without an owner count as
    /// number 0.
    shares: SmallVec<[(u64, usize); 1]>,
    /// Boxed: most holds are not handed over.
    more: Option<Box<More>>,
}

#[derive(Debug, Default)]
struct More {
    handovers: u32,
    /// The route of the present holder, and when it got the hold, since the first hand-over.
    holder: Option<(Route, Instant)>,
    /// It has a minimum: its last share leaves it in the store, and no other request gets it.
    is_last_here: bool,
    /// It was lost before its last share ended: it excludes no other.
    lost: bool,
}

impl Shared {
    pub(super) fn new(held: Arc<Held>, now: Instant) -> Self {
        Self {
            held,
            granted: now,
            shares: SmallVec::new(),
            more: None,
        }
    }

    /// It is granted to a request. Returns its share, and when the keeper visits the hold first.
    pub(super) fn grant_to(&mut self, terms: &Terms) -> (NewShare, Instant) {
        let visit = self.held.granted(terms.limit(self.granted), self.granted);
        (self.join(&terms.owner), visit)
    }

    /// Another request shares it.
    pub(super) fn join(&mut self, owner: &Option<Owner>) -> NewShare {
        match self.place_of(owner.as_ref()) {
            Ok(place) => self.shares[place].1 += 1,
            Err(place) => self.shares.insert(place, (number(owner.as_ref()), 1)),
        }
        NewShare {
            held: self.held.clone(),
            owner: owner.clone(),
            handed_over: false,
        }
    }

    /// The next request gets it.
    pub(super) fn pass_to(&mut self, terms: &Terms, wheel: &mut Wheel, now: Instant) -> NewShare {
        let more = self.more();
        more.handovers += 1;
        more.holder = Some((terms.route, now));
        if self.held.hand_over(terms.limit(now), now) {
            wheel.place(&self.held, now);
        }
        NewShare {
            handed_over: true,
            ..self.join(&terms.owner)
        }
    }

    /// One share ends. Returns whether any is left.
    pub(super) fn leave(&mut self, owner: Option<&Owner>) -> bool {
        let place = self.place_of(owner);
        let place = place.expect("only what has joined leaves");
        self.shares[place].1 -= 1;
        if self.shares[place].1 == 0 {
            self.shares.remove(place);
        }
        !self.shares.is_empty()
    }

    /// Whether it may pass to a request with these terms: the turn of this process lasts, and the hold suits the terms.
    pub(super) fn may_pass_to(
        &self,
        terms: &Terms,
        limits: super::HandoverLimits,
        now: Instant,
    ) -> bool {
        let more = self.more.as_deref();
        !self.is_last_here()
            && more.map_or(0, |more| more.handovers) < limits.handovers
            && now < self.granted + limits.handover_time
            && self.suits(terms, now)
    }

    /// Whether it can serve a request with these terms as well: it is held, its renewal fits, and enough of its lease is left.
    fn suits(&self, terms: &Terms, now: Instant) -> bool {
        matches!(terms.lease, Lease::Renewed(_)) && self.held.is_open(now) && self.fits(terms, now)
    }

    /// The same for a hold that was just granted, which need not be renewed. At least a third of the request's lease is left, and no
    /// more than its longest hold: otherwise the store would keep the key longer than that if the request never ends.
    pub(super) fn fits(&self, terms: &Terms, now: Instant) -> bool {
        let deadline = self.held.deadline();
        terms.lease == self.held.lease
            && now + terms.granted_lease() / 3 < deadline
            && terms
                .max_hold
                .is_none_or(|max_hold| deadline <= now + max_hold)
            && (!terms.needs_token() || self.held.token().is_some())
    }

    /// Whether other requests may share this read.
    pub(super) fn is_open_read(&self) -> bool {
        self.held.hold.mode == LockMode::Read && !self.is_lost()
    }

    /// Whether a request with these terms can share this read, whose longest hold is the same: at least half of it is left.
    pub(super) fn admits(&self, terms: &Terms, now: Instant) -> bool {
        let is_late = |max_hold| now >= self.granted + max_hold / 2;
        self.suits(terms, now)
            && self.held.limit() == terms.limit(self.granted)
            && !terms.max_hold.is_some_and(is_late)
    }

    pub(super) fn is_shared_by(&self, owner: &Owner) -> bool {
        self.place_of(Some(owner)).is_ok()
    }

    /// It was lost before its last share ended.
    pub(super) fn is_lost(&self) -> bool {
        self.more.as_ref().is_some_and(|more| more.lost)
    }

    pub(super) fn lose(&mut self) {
        self.more().lost = true;
    }

    /// It is handed over `left` times more at most, of `in_all`.
    pub(super) fn limit_handovers(&mut self, left: u32, in_all: u32) {
        let more = self.more();
        more.handovers = more.handovers.max(in_all.saturating_sub(left));
    }

    /// It has a minimum, and is not handed over.
    pub(super) fn forbid_handover(&mut self) {
        self.more().is_last_here = true;
    }

    pub(super) fn is_last_here(&self) -> bool {
        self.more.as_ref().is_some_and(|more| more.is_last_here)
    }

    /// The number of shares.
    pub(super) fn shares(&self) -> usize {
        self.shares.iter().map(|(_, shares)| shares).sum()
    }

    /// The route of its present holder, that of the first share, and when it got the hold.
    pub(super) fn holder(&self) -> (Route, Instant) {
        let holder = self.more.as_ref().and_then(|more| more.holder);
        holder.unwrap_or((self.held.route, self.granted))
    }

    /// Where an owner is among the shares, or belongs.
    fn place_of(&self, owner: Option<&Owner>) -> Result<usize, usize> {
        let owner = number(owner);
        self.shares
            .binary_search_by_key(&owner, |(other, _)| *other)
    }

    fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }
}

fn number(owner: Option<&Owner>) -> u64 {
    owner.map_or(0, Owner::number)
}
