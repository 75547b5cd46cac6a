//! A hold of this process, and its shares.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::small_map::Counts;
use super::{NewShare, Pace, Terms};
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
/// Each share is either `first` or counted in `more`.
pub(super) struct LocalHold {
    pub(super) live: Arc<LiveHold>,
    granted: Moment,
    first: Option<LocalHolder>,
    /// Boxed: most holds have one share, and are not handed over.
    more: Option<Box<MoreHolders>>,
    /// A read under its owner's own write. No other request joins it.
    pub(super) nested: bool,
    /// A write under which its owner reads, or asks to. In the store the read has the id of this hold and outlives it. So
    /// the hold is not handed over: its next holder would use the same id.
    pub(super) read_under: bool,
    pub(super) detached: bool,
}

/// A share in a hold: its owner and its limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LocalHolder {
    pub(super) owner: Option<Owner>,
    /// [`Moment::NEVER`]: it has none.
    pub(super) limit: Moment,
}

/// The shares of a hold beside the first, and its hand-overs. The cost of joining and leaving does not depend on the number
/// of shares.
#[derive(Default)]
struct MoreHolders {
    count: usize,
    owners: Counts<u64>,
    limits: Counts<Moment>,
    handovers: u32,
    /// The route of the present holder, and when it got the hold, since the first hand-over.
    holder: Option<(Route, Instant)>,
}

impl LocalHold {
    /// A new hold, and its first share.
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
        let hold = Self {
            live,
            granted: now.into(),
            first: Some(holder),
            more: None,
            nested,
            read_under: false,
            detached: false,
        };
        (hold, share)
    }

    pub(super) fn join(&mut self, terms: &Terms, now: Instant) -> NewShare {
        let holder = terms.holder(now);
        match self.first {
            None => self.first = Some(holder.clone()),
            Some(_) => self.more().add(&holder),
        }
        self.settle_limit();
        NewShare {
            live: self.live.clone(),
            holder,
            handed_over: false,
        }
    }

    /// Ends one share. Returns whether any is left.
    pub(super) fn leave(&mut self, holder: &LocalHolder) -> bool {
        match &mut self.more {
            // Shares with the same terms are alike.
            _ if self.first.as_ref() == Some(holder) => self.first = None,
            Some(more) => more.remove(holder),
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
    pub(super) fn may_pass_to(&self, terms: &Terms, now: Instant, turn: Pace) -> bool {
        !self.read_under
            && self.handovers() < turn.handovers
            && Moment::from(now) < self.granted + turn.handover_time
            && self.suits(terms, now)
    }

    pub(super) fn pass_to(&mut self, terms: &Terms, now: Instant) -> NewShare {
        let more = self.more();
        more.handovers += 1;
        more.holder = Some((terms.route.clone(), now));
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

    /// Whether a request with these terms can share the hold: it is held, enough of its lease is left, and its renewal
    /// fits the request.
    pub(super) fn suits(&self, terms: &Terms, now: Instant) -> bool {
        #[cfg(test)]
        if exploration::has(Mutant::LostPassedOn) {
            return true;
        }
        self.live.phase() == Phase::Held
            && matches!(terms.lease, Lease::Renewed(_))
            && terms.lease == self.live.lease()
            && now + terms.lease.duration() / 3 < self.live.deadline()
            && (!terms.fenced || self.live.token().is_some())
    }

    /// Whether other requests may share this read.
    pub(super) fn is_open_read(&self) -> bool {
        self.live.hold.mode == LockMode::Read && !self.nested && !self.detached
    }

    pub(super) fn is_shared_by(&self, owner: &Owner) -> bool {
        let first = self.first.as_ref();
        let more = || self.more.as_ref();
        first.is_some_and(|first| first.owner.as_ref() == Some(owner))
            || more().is_some_and(|more| more.owners.contains(owner.number()))
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
        let more = self.more.as_ref().map_or(0, |more| more.count);
        usize::from(self.first.is_some()) + more
    }

    /// The number of hand-overs.
    pub(super) fn handovers(&self) -> u32 {
        self.more.as_ref().map_or(0, |more| more.handovers)
    }

    /// The route of its present holder: that of the first share.
    pub(super) fn route(&self) -> &Route {
        let holder = self.more.as_ref().and_then(|more| more.holder.as_ref());
        holder.map_or(&self.live.route, |(route, _)| route)
    }

    /// When its present holder got it.
    #[cfg(feature = "console")]
    pub(super) fn since(&self) -> Instant {
        let holder = self.more.as_ref().and_then(|more| more.holder.as_ref());
        holder.map_or_else(|| self.granted.into(), |(_, since)| *since)
    }

    /// The rest of its lease. `None` if the hold is lost.
    pub(super) fn remaining(&self, now: Instant) -> Option<Duration> {
        let held = !self.detached && !self.live.is_lost();
        held.then(|| self.live.deadline().saturating_duration_since(now))
    }

    /// Sets the limit of the hold to the latest limit of its shares.
    fn settle_limit(&self) {
        let first = self.first.as_ref().map(|first| first.limit);
        let more = self.more.as_ref();
        let more = more.and_then(|more| more.limits.greatest_key());
        if let Some(limit) = first.max(more) {
            self.live.set_limit(limit);
        }
    }

    fn more(&mut self) -> &mut MoreHolders {
        self.more.get_or_insert_default()
    }
}

impl MoreHolders {
    fn add(&mut self, holder: &LocalHolder) {
        self.count += 1;
        self.limits.add(holder.limit);
        if let Some(owner) = &holder.owner {
            self.owners.add(owner.number());
        }
    }

    fn remove(&mut self, holder: &LocalHolder) {
        self.count -= 1;
        self.limits.subtract(holder.limit);
        if let Some(owner) = &holder.owner {
            self.owners.subtract(owner.number());
        }
    }
}

impl Terms {
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
        assert_eq!(size_of::<LocalHold>(), 48);
        assert_eq!(size_of::<Option<LocalHold>>(), 48);
        assert_eq!(size_of::<LiveHold>(), 160);
    }
}
