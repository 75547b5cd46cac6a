//! A hold of this process, and its shares.

use std::mem;
use std::sync::Arc;

use tokio::time::Instant;

use smallvec::SmallVec;

use super::wheel::Wheel;
use super::{Grant, Holder, Terms};
use crate::hold::Held;
use crate::lock::{Lease, LockMode, Owner};
use crate::telemetry::Route;

/// A hold of this process.
///
/// It is here from its grant until its last share ends. Then it passes to the next request, or is released in the store.
pub(super) struct Shared {
    pub(super) held: Arc<Held>,
    pub(super) granted: Instant,
    /// Its shares, in no order.
    holders: SmallVec<[Holder; 1]>,
    /// When the renewals of the hold end.
    limit: Option<Instant>,
    handovers: u32,
    /// It is released at its end: other processes have their turn.
    stays: bool,
    /// It was lost before its last share ended: it excludes no other.
    lost: bool,
    /// The route of the present holder, and when it got the hold, since the first hand-over. Boxed: most holds are not handed over.
    holder: Option<Box<(Route, Instant)>>,
}

impl Shared {
    pub(super) fn new(held: Arc<Held>, now: Instant) -> Self {
        Self {
            held,
            granted: now,
            holders: SmallVec::new(),
            limit: None,
            handovers: 0,
            stays: false,
            lost: false,
            holder: None,
        }
    }

    /// Another request shares it.
    pub(super) fn join(&mut self, terms: &Terms, wheel: &mut Wheel, now: Instant) -> Grant {
        let holder = Holder {
            owner: terms.owner.clone(),
            limit: terms.max_hold.map(|max_hold| now + max_hold),
        };
        self.holders.push(holder.clone());
        self.settle_limit(wheel, now);
        Grant {
            held: self.held.clone(),
            holder,
            handed_over: false,
        }
    }

    /// The next request gets it.
    pub(super) fn pass_to(&mut self, terms: &Terms, wheel: &mut Wheel, now: Instant) -> Grant {
        self.handovers += 1;
        self.holder = Some(Box::new((terms.route, now)));
        self.held.advance_token();
        Grant {
            handed_over: true,
            ..self.join(terms, wheel, now)
        }
    }

    /// One share ends. Returns whether any is left.
    pub(super) fn leave(&mut self, holder: &Holder, wheel: &mut Wheel, now: Instant) -> bool {
        // Shares with the same terms are alike.
        if let Some(share) = self.holders.iter().position(|share| share == holder) {
            self.holders.swap_remove(share);
        }
        let is_left = !self.holders.is_empty();
        if is_left {
            self.settle_limit(wheel, now);
        }
        is_left
    }

    /// Whether it may pass to a request with these terms: the turn of this process lasts, and the hold suits the terms.
    pub(super) fn may_pass_to(
        &self,
        terms: &Terms,
        limits: super::HandoverLimits,
        now: Instant,
    ) -> bool {
        !self.stays
            && self.handovers < limits.handovers
            && now < self.granted + limits.handover_time
            && self.suits(terms, now)
    }

    /// Whether a request with these terms can share it: it is held, its renewal fits, and enough of its lease is left.
    pub(super) fn suits(&self, terms: &Terms, now: Instant) -> bool {
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

    pub(super) fn is_shared_by(&self, owner: &Owner) -> bool {
        let mut holders = self.holders.iter();
        holders.any(|holder| holder.owner.as_ref() == Some(owner))
    }

    /// It was lost before its last share ended.
    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }

    pub(super) fn lose(&mut self) {
        self.lost = true;
    }

    /// It is released at its end.
    pub(super) fn stay(&mut self) {
        self.stays = true;
    }

    /// The number of shares.
    pub(super) fn shares(&self) -> usize {
        self.holders.len()
    }

    /// The route of its present holder: that of the first share.
    pub(super) fn route(&self) -> &Route {
        let holder = self.holder.as_deref();
        holder.map_or(&self.held.route, |(route, _)| route)
    }

    /// When its present holder got it.
    pub(super) fn since(&self) -> Instant {
        let holder = self.holder.as_deref();
        holder.map_or(self.granted, |(_, since)| *since)
    }

    /// Its renewals end with the latest limit of its shares.
    fn settle_limit(&mut self, wheel: &mut Wheel, now: Instant) {
        // One without a limit is the latest.
        let mut limits = self.holders.iter().map(|holder| holder.limit);
        let latest = limits.try_fold(None, |latest, limit| Some(latest.max(Some(limit?))));
        let limit = latest.flatten();
        if mem::replace(&mut self.limit, limit) != limit
            && self.held.set_limit(limit)
            && let Some(visit) = self.held.early_visit(now)
        {
            wheel.place(&self.held, visit);
        }
    }
}
