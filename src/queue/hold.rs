//! A hold of this process, and its shares.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::counts::Counts;
use super::{HandoverLimits, NewShare, Terms};
#[cfg(test)]
use crate::exploration::{self, Mutant};
use crate::lock::{Lease, LockMode, Owner};
use crate::telemetry::Route;
use crate::watchdog::{LiveHold, Moment, Phase};

/// A hold of this process.
///
/// It exists from its grant until its last share ends. Then it is handed over to the next waiter, or released in the
/// store. If it is lost before that, it is `detached`: the remaining shares belong to a hold that excludes no request.
///
/// Each share is either `first` or counted in the rest.
pub(super) struct LocalHold {
    pub(super) live: Arc<LiveHold>,
    granted: Moment,
    first: Option<LocalHolder>,
    /// Boxed: most holds have one share, are not handed over, and are not lost.
    rest: Option<Box<HoldRest>>,
}

/// A share in a hold: its owner and its limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LocalHolder {
    pub(super) owner: Option<Owner>,
    /// [`Moment::NEVER`]: it has none.
    pub(super) limit: Moment,
}

/// What most holds do not have. The cost of joining and leaving does not depend on the number of shares.
#[derive(Default)]
struct HoldRest {
    /// The number of shares beside the first, their owners and their limits.
    shares: usize,
    owners: Counts<u64>,
    limits: Counts<Moment>,
    handovers: u32,
    /// The route of the present holder, and when it got the hold, since the first hand-over.
    holder: Option<(Route, Instant)>,
    nested: bool,
    stays: bool,
    detached: bool,
}

impl LocalHold {
    /// A new hold, and its first share.
    #[inline]
    pub(super) fn new(
        live: Arc<LiveHold>,
        nested: bool,
        terms: &Terms,
        now: Instant,
    ) -> (Self, NewShare) {
        let holder = terms.holder(now);
        if holder.limit != Moment::NEVER {
            live.set_limit(holder.limit);
        }
        let share = NewShare {
            live: live.clone(),
            holder: holder.clone(),
            handed_over: false,
        };
        let mut hold = Self {
            live,
            granted: now.into(),
            first: Some(holder),
            rest: None,
        };
        if nested {
            hold.rest().nested = true;
        }
        (hold, share)
    }

    pub(super) fn join(&mut self, terms: &Terms, now: Instant) -> NewShare {
        let holder = terms.holder(now);
        match self.first {
            None => self.first = Some(holder.clone()),
            Some(_) => self.rest().add(&holder),
        }
        self.settle_limit();
        NewShare {
            live: self.live.clone(),
            holder,
            handed_over: false,
        }
    }

    /// Ends one share. Returns whether any is left.
    #[inline]
    pub(super) fn leave(&mut self, holder: &LocalHolder) -> bool {
        match &mut self.rest {
            // Shares with the same terms are alike.
            _ if self.first.as_ref() == Some(holder) => self.first = None,
            Some(rest) => rest.remove(holder),
            None => unreachable!("a share that ends is there"),
        }
        if self.shares() == 0 {
            return false;
        }
        self.settle_limit();
        true
    }

    /// Whether the hold may be handed over to a waiter with these terms: the turn of this process lasts, and the hold
    /// fits the terms.
    pub(super) fn may_pass_to(&self, terms: &Terms, now: Instant, turn: HandoverLimits) -> bool {
        !self.look(|rest| rest.stays)
            && self.handovers() < turn.handovers
            && Moment::from(now) < self.granted + turn.handover_time
            && self.suits(terms, now)
    }

    pub(super) fn pass_to(&mut self, terms: &Terms, now: Instant) -> NewShare {
        let rest = self.rest();
        rest.handovers += 1;
        rest.holder = Some((terms.route.clone(), now));
        #[cfg(test)]
        if exploration::has(Mutant::TokenKept) {
            return self.join(terms, now);
        }
        self.live.advance_token();
        NewShare {
            handed_over: true,
            ..self.join(terms, now)
        }
    }

    /// Whether a request with these terms can share the hold: it is held, enough of its lease is left but no more than the
    /// request may hold, and its renewal fits the request.
    pub(super) fn suits(&self, terms: &Terms, now: Instant) -> bool {
        #[cfg(test)]
        if exploration::has(Mutant::LostPassedOn) {
            return true;
        }
        self.live.phase() == Phase::Held
            && matches!(terms.lease, Lease::Renewed(_))
            && terms.lease == self.live.lease()
            && self.is_left_for(terms, now)
            && (!terms.needs_token() || self.live.token().is_some())
    }

    /// Whether a third of the request's lease is left, and no more than its longest hold: otherwise the store would keep the key
    /// longer than that if the request never ends. The answer to a renewal that is under way may still add up to one lease.
    fn is_left_for(&self, terms: &Terms, now: Instant) -> bool {
        let deadline = self.live.deadline();
        let ends_in_time = |max_hold: Duration| deadline <= now + max_hold;
        now + terms.granted_lease() / 3 < deadline && terms.max_hold.is_none_or(ends_in_time)
    }

    /// Whether other requests may share this read.
    pub(super) fn is_open_read(&self) -> bool {
        self.live.hold.mode == LockMode::Read && !self.is_nested() && !self.is_detached()
    }

    pub(super) fn is_shared_by(&self, owner: &Owner) -> bool {
        let first = self.first.as_ref();
        first.is_some_and(|first| first.owner.as_ref() == Some(owner))
            || self.look(|rest| rest.owners.contains(owner.number()))
    }

    /// A read under its owner's own write. No other request joins it.
    pub(super) fn is_nested(&self) -> bool {
        self.look(|rest| rest.nested)
    }

    /// Sets whether it is released at its end, and not handed over, because a next holder would use the same id:
    ///
    /// * Its owner reads under this write, or asks to. In the store the read has the id of this hold and outlives it.
    /// * The store is asked to keep it for a minimum, and has not answered, or another key of its guard is lost. A hold with a
    ///   minimum has one share, without an owner, so no read is under it.
    pub(super) fn stay(&mut self, stays: bool) {
        self.rest().stays = stays;
    }

    /// It was lost before its last share ended.
    pub(super) fn is_detached(&self) -> bool {
        self.look(|rest| rest.detached)
    }

    /// Returns whether it was detached before.
    pub(super) fn detach(&mut self) -> bool {
        mem::replace(&mut self.rest().detached, true)
    }

    /// Whether it is this one.
    pub(super) fn is(&self, live: &Arc<LiveHold>) -> bool {
        Arc::ptr_eq(&self.live, live)
    }

    pub(super) fn granted(&self) -> Moment {
        self.granted
    }

    /// The number of shares.
    pub(super) fn shares(&self) -> usize {
        usize::from(self.first.is_some()) + self.look(|rest| rest.shares)
    }

    /// The number of hand-overs.
    pub(super) fn handovers(&self) -> u32 {
        self.look(|rest| rest.handovers)
    }

    /// The route of its present holder: that of the first share.
    pub(super) fn route(&self) -> &Route {
        let holder = self.rest.as_ref().and_then(|rest| rest.holder.as_ref());
        holder.map_or(&self.live.route, |(route, _)| route)
    }

    /// When its present holder got it.
    pub(super) fn since(&self) -> Instant {
        let holder = self.rest.as_ref().and_then(|rest| rest.holder.as_ref());
        holder.map_or_else(|| self.granted.into(), |(_, since)| *since)
    }

    /// The rest of its lease. `None` if the hold is lost.
    pub(super) fn remaining(&self, now: Instant) -> Option<Duration> {
        let held = !self.is_detached() && !self.live.is_lost();
        held.then(|| self.live.deadline().saturating_duration_since(now))
    }

    /// Sets the limit of the hold to the latest limit of its shares.
    fn settle_limit(&self) {
        let first = self.first.as_ref().map(|first| first.limit);
        if let Some(limit) = first.max(self.look(|rest| rest.limits.greatest())) {
            self.live.set_limit(limit);
        }
    }

    fn look<T: Default>(&self, look: impl FnOnce(&HoldRest) -> T) -> T {
        self.rest.as_deref().map(look).unwrap_or_default()
    }

    fn rest(&mut self) -> &mut HoldRest {
        self.rest.get_or_insert_default()
    }
}

impl HoldRest {
    fn add(&mut self, holder: &LocalHolder) {
        self.shares += 1;
        self.limits.add(holder.limit);
        if let Some(owner) = &holder.owner {
            self.owners.add(owner.number());
        }
    }

    fn remove(&mut self, holder: &LocalHolder) {
        self.shares -= 1;
        self.limits.subtract(holder.limit);
        if let Some(owner) = &holder.owner {
            self.owners.subtract(owner.number());
        }
    }
}

impl Terms {
    /// Whether the grant is to have a fencing token.
    pub(crate) fn needs_token(&self) -> bool {
        self.fenced && self.mode.is_exclusive()
    }

    /// The share of such a request in a hold that it gets now.
    fn holder(&self, now: Instant) -> LocalHolder {
        let limit = self.max_hold.map(|max_hold| Moment::from(now + max_hold));
        LocalHolder {
            owner: self.owner.clone(),
            limit: limit.unwrap_or(Moment::NEVER),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client with a hundred thousand holds keeps one of each for each of them.
    #[test]
    fn a_hold_is_small() {
        assert_eq!(size_of::<LocalHold>(), 40);
        assert_eq!(size_of::<Option<LocalHold>>(), 40);
        assert_eq!(size_of::<LiveHold>(), 152);
    }
}
