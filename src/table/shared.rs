//! A hold of this process, and its shares.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::wheel::Wheel;
use super::{Holder, NewShare, Terms};
use crate::hold::Held;
use crate::lock::{Lease, LockMode, Owner};
use crate::telemetry::Route;

/// A hold of this process.
///
/// It is here from its grant until its last share ends. Then it passes to the next request, or is released in the store. Each share
/// is either `first` or counted in `more`. What it costs to join and to leave hardly depends on the number of shares.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) held: Arc<Held>,
    pub(super) granted: Instant,
    first: Option<Holder>,
    /// Boxed: most holds have one share, and are not handed over.
    more: Option<Box<More>>,
}

#[derive(Debug, Default)]
struct More {
    /// The number of shares beside the first, how many have each owner, and how many each limit.
    shares: usize,
    owners: BTreeMap<u64, usize>,
    limits: BTreeMap<Limit, usize>,
    handovers: u32,
    /// The route of the present holder, and when it got the hold, since the first hand-over.
    holder: Option<(Route, Instant)>,
    /// It is released at its end, and not handed over: other processes have their turn.
    is_last_here: bool,
    /// It was lost before its last share ended: it excludes no other.
    lost: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Limit {
    At(Instant),
    Never,
}

impl From<Option<Instant>> for Limit {
    fn from(limit: Option<Instant>) -> Self {
        limit.map_or(Self::Never, Self::At)
    }
}

impl Shared {
    pub(super) fn new(held: Arc<Held>, now: Instant) -> Self {
        Self {
            held,
            granted: now,
            first: None,
            more: None,
        }
    }

    /// Another request shares it.
    pub(super) fn join(&mut self, terms: &Terms, wheel: &mut Wheel, now: Instant) -> NewShare {
        let holder = Holder {
            owner: terms.owner.clone(),
            limit: terms.max_hold.map(|max_hold| now + max_hold),
        };
        match self.first {
            None => self.first = Some(holder.clone()),
            Some(_) => self.more().add(&holder),
        }
        self.settle_limit(wheel, now);
        NewShare {
            held: self.held.clone(),
            holder,
            handed_over: false,
        }
    }

    /// The next request gets it.
    pub(super) fn pass_to(&mut self, terms: &Terms, wheel: &mut Wheel, now: Instant) -> NewShare {
        let more = self.more();
        more.handovers += 1;
        more.holder = Some((terms.route, now));
        self.held.advance_token();
        NewShare {
            handed_over: true,
            ..self.join(terms, wheel, now)
        }
    }

    /// One share ends. Returns whether any is left.
    pub(super) fn leave(&mut self, holder: &Holder, wheel: &mut Wheel, now: Instant) -> bool {
        match &mut self.more {
            // Shares with the same terms are alike.
            _ if self.first.as_ref() == Some(holder) => self.first = None,
            Some(more) => more.remove(holder),
            None => {}
        }
        let is_left = self.shares() > 0;
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
        let more = self.more.as_deref();
        !more.is_some_and(|more| more.is_last_here)
            && more.map_or(0, |more| more.handovers) < limits.handovers
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
        let first = self.first.as_ref();
        let more = self.more.as_ref();
        first.is_some_and(|first| first.owner.as_ref() == Some(owner))
            || more.is_some_and(|more| more.owners.contains_key(&owner.number()))
    }

    /// It was lost before its last share ended.
    pub(super) fn is_lost(&self) -> bool {
        self.more.as_ref().is_some_and(|more| more.lost)
    }

    pub(super) fn lose(&mut self) {
        self.more().lost = true;
    }

    /// It is released at its end, and not handed over.
    pub(super) fn forbid_handover(&mut self) {
        self.more().is_last_here = true;
    }

    /// The number of shares.
    pub(super) fn shares(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.as_ref().map_or(0, |more| more.shares)
    }

    /// The route of its present holder, that of the first share, and when it got the hold.
    pub(super) fn holder(&self) -> (Route, Instant) {
        let holder = self.more.as_ref().and_then(|more| more.holder);
        holder.unwrap_or((self.held.route, self.granted))
    }

    /// Its renewals end with the latest limit of its shares.
    fn settle_limit(&mut self, wheel: &mut Wheel, now: Instant) {
        let first = self.first.as_ref().map(|first| Limit::from(first.limit));
        let more = self.more.as_ref();
        let more = more.and_then(|more| more.limits.last_key_value());
        let limit = match first.max(more.map(|(limit, _)| *limit)) {
            Some(Limit::At(limit)) => Some(limit),
            Some(Limit::Never) | None => None,
        };
        if self.held.set_limit(limit)
            && let Some(visit) = self.held.early_visit(now)
        {
            wheel.place(&self.held, visit);
        }
    }

    fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }
}

impl More {
    fn add(&mut self, holder: &Holder) {
        self.shares += 1;
        *self.limits.entry(holder.limit.into()).or_default() += 1;
        if let Some(owner) = &holder.owner {
            *self.owners.entry(owner.number()).or_default() += 1;
        }
    }

    fn remove(&mut self, holder: &Holder) {
        self.shares -= 1;
        one_less(&mut self.limits, &holder.limit.into());
        if let Some(owner) = &holder.owner {
            one_less(&mut self.owners, &owner.number());
        }
    }
}

fn one_less<K: Ord>(counts: &mut BTreeMap<K, usize>, value: &K) {
    let count = counts.get_mut(value);
    let count = count.expect("only what was added is taken out");
    *count -= 1;
    if *count == 0 {
        counts.remove(value);
    }
}
