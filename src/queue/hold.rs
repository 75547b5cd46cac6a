//! A hold of this process, and its shares.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::small_map::Counts;
use super::{NewShare, Pace, Terms};
#[cfg(test)]
use crate::exploration::{self, Mutant};
use crate::lock::{FencingToken, Lease, LockMode, Owner};
use crate::telemetry::Route;
use crate::watchdog::{LiveHold, Phase};

/// A hold of this process.
///
/// It exists from its grant until its last share ends. Then it is handed over to the next waiter, or released in the
/// store. If it is lost before that, it is `detached`: the remaining shares belong to a hold that excludes no request.
pub(super) struct LocalHold {
    pub(super) live: Arc<LiveHold>,
    holders: LocalHolders,
    /// The latest limit of `live`.
    limit: Option<Instant>,
    pub(super) granted: Instant,
    /// The route of its present holder: that of the first share.
    pub(super) route: Route,
    /// When its present holder got it.
    pub(super) since: Instant,
    /// The number of hand-overs.
    pub(super) passed: u32,
    /// The token of its present holder.
    pub(super) token: Option<FencingToken>,
    /// A read under its owner's own write. No other request joins it.
    pub(super) nested: bool,
    /// A write under which its owner reads, or asks to. In the store the read has the id of this hold and outlives it. So
    /// the hold is not handed over: its next holder would use the same id.
    pub(super) read_under: bool,
    pub(super) detached: bool,
}

/// A share in a hold: its owner and its limit.
#[derive(Debug, Clone)]
pub(super) struct LocalHolder {
    pub(super) owner: Option<Owner>,
    pub(super) limit: Option<Instant>,
}

impl LocalHold {
    pub(super) fn new(live: Arc<LiveHold>, nested: bool, now: Instant) -> Self {
        Self {
            token: live.token,
            route: live.route.clone(),
            since: now,
            live,
            holders: LocalHolders::default(),
            limit: None,
            granted: now,
            passed: 0,
            nested,
            read_under: false,
            detached: false,
        }
    }

    pub(super) fn join(&mut self, terms: &Terms, now: Instant) -> NewShare {
        let holder = LocalHolder {
            owner: terms.owner.clone(),
            limit: terms.max_hold.map(|max_hold| now + max_hold),
        };
        self.holders.add(&holder);
        self.settle_limit();
        NewShare {
            live: self.live.clone(),
            holder,
            token: self.token,
            handed_over: false,
        }
    }

    /// Ends one share. Returns whether any is left.
    pub(super) fn leave(&mut self, holder: &LocalHolder) -> bool {
        self.holders.remove(holder);
        if self.holders.count == 0 {
            return false;
        }
        self.settle_limit();
        true
    }

    /// Whether the hold may be handed over to a waiter with these terms: the turn of this process lasts, and the hold
    /// fits the terms.
    pub(super) fn may_pass_to(&self, terms: &Terms, now: Instant, turn: Pace) -> bool {
        !self.read_under
            && self.passed < turn.handovers
            && now < self.granted + turn.handover_time
            && self.suits(terms, now)
    }

    pub(super) fn pass_to(&mut self, terms: &Terms, now: Instant) -> NewShare {
        self.passed += 1;
        self.route = terms.route.clone();
        self.since = now;
        #[cfg(test)]
        if exploration::has(Mutant::TokenKept) {
            return self.join(terms, now);
        }
        let first = self.live.token;
        self.token = first.map(|first| FencingToken::new(first.value() + u64::from(self.passed)));
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
            && terms.lease == self.live.lease
            && now + terms.lease.duration() / 3 < self.live.deadline()
            && (!terms.fenced || self.live.token.is_some())
    }

    /// Whether other requests may share this read.
    pub(super) fn is_open_read(&self) -> bool {
        self.live.hold.mode == LockMode::Read && !self.nested && !self.detached
    }

    pub(super) fn is_shared_by(&self, owner: &Owner) -> bool {
        self.holders.owners.contains(owner.number())
    }

    /// The number of shares.
    #[cfg(feature = "console")]
    pub(super) fn shares(&self) -> usize {
        self.holders.count
    }

    /// The rest of its lease. `None` if the hold is lost.
    pub(super) fn remaining(&self, now: Instant) -> Option<Duration> {
        let held = !self.detached && !self.live.is_lost();
        held.then(|| self.live.deadline().saturating_duration_since(now))
    }

    /// Sets the limit of the hold to the latest limit of its shares.
    fn settle_limit(&mut self) {
        let limit = self.holders.limit();
        if limit != self.limit {
            self.limit = limit;
            self.live.set_limit(limit);
        }
    }
}

/// The shares of one hold. The cost of joining and leaving does not depend on their number.
#[derive(Debug, Default)]
struct LocalHolders {
    count: usize,
    owners: Counts<u64>,
    /// The number of shares without a limit.
    unlimited: usize,
    limits: Counts<Instant>,
}

impl LocalHolders {
    fn add(&mut self, holder: &LocalHolder) {
        self.count += 1;
        if let Some(owner) = &holder.owner {
            self.owners.add(owner.number());
        }
        match holder.limit {
            Some(limit) => self.limits.add(limit),
            None => self.unlimited += 1,
        }
    }

    fn remove(&mut self, holder: &LocalHolder) {
        self.count -= 1;
        if let Some(owner) = &holder.owner {
            self.owners.subtract(owner.number());
        }
        match holder.limit {
            Some(limit) => self.limits.subtract(limit),
            None => self.unlimited -= 1,
        }
    }

    /// The latest limit; `None` if a share has no limit.
    fn limit(&self) -> Option<Instant> {
        match self.unlimited {
            0 => self.limits.greatest_key(),
            _ => None,
        }
    }
}
