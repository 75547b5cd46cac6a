//! A hold and those who share it.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::entry::At;
use super::{Joined, Terms};
#[cfg(test)]
use crate::exploration::{self, Mutant};
use crate::keeper::{LiveHold, Phase};
use crate::lock::{FencingToken, Lease, Owner};

/// A hold of this process.
pub(super) struct Active {
    pub(super) live: Arc<LiveHold>,
    /// Nearly always one.
    sharers: SmallVec<[Sharer; 1]>,
    pub(super) granted: Instant,
    /// How many times it was passed on.
    passed: u32,
    /// The token of its present holder.
    pub(super) token: Option<FencingToken>,
    /// Its owner reads under its own write: nobody joins.
    pub(super) nested: bool,
    /// A write under which its owner reads, or asks to: in the store the read bears the name of this hold, and stays when
    /// it ends, so that nobody else may go on under that name.
    pub(super) read_under: bool,
    /// It was lost: its lane has gone on without it.
    pub(super) detached: bool,
}

/// Whoever has a share in a hold, and until when it may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sharer {
    pub(super) owner: Option<Owner>,
    pub(super) limit: Option<Instant>,
}

impl Active {
    pub(super) fn new(live: Arc<LiveHold>, nested: bool, now: Instant) -> Self {
        Self {
            token: live.token,
            live,
            sharers: SmallVec::new(),
            granted: now,
            passed: 0,
            nested,
            read_under: false,
            detached: false,
        }
    }

    pub(super) fn join(&mut self, terms: &Terms, now: Instant) -> Joined {
        let sharer = Sharer {
            owner: terms.owner.clone(),
            limit: terms.max_hold.map(|max_hold| now + max_hold),
        };
        self.sharers.push(sharer.clone());
        self.settle_limit();
        Joined {
            live: self.live.clone(),
            sharer,
            token: self.token,
        }
    }

    /// One share ends; says whether any is left.
    pub(super) fn leave(&mut self, sharer: &Sharer) -> bool {
        let mut all = self.sharers.iter();
        let place = all.position(|present| present == sharer);
        self.sharers
            .swap_remove(place.expect("a sharer is counted until it leaves"));
        if self.sharers.is_empty() {
            return false;
        }
        self.settle_limit();
        true
    }

    /// Whether the next in line may have the hold as it is, for the sake of those who wait in other processes and of the
    /// caller itself.
    pub(super) fn may_pass_to(&self, terms: &Terms, at: At) -> bool {
        !self.read_under
            && self.passed < at.pace.handovers
            && at.now < self.granted + at.pace.handover_time
            && self.suits(terms, at.now)
    }

    pub(super) fn pass_to(&mut self, terms: &Terms, now: Instant) -> Joined {
        self.passed += 1;
        #[cfg(test)]
        if exploration::has(Mutant::TokenKept) {
            return self.join(terms, now);
        }
        let first = self.live.token;
        self.token = first.map(|first| FencingToken::new(first.value() + u64::from(self.passed)));
        self.join(terms, now)
    }

    /// Whether a caller of such terms may be given the hold as it is: alive, with a good part of the lease left, and
    /// renewed as the caller wants it.
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

    pub(super) fn is_shared_by(&self, owner: &Option<Owner>) -> bool {
        self.sharers.iter().any(|sharer| sharer.owner == *owner)
    }

    /// How long it lives without renewal.
    pub(super) fn remaining(&self, now: Instant) -> Duration {
        self.live.deadline().saturating_duration_since(now)
    }

    /// The hold may live as long as the most patient of those who share it now allows.
    fn settle_limit(&self) {
        let limits = self.sharers.iter().map(|sharer| sharer.limit);
        let longest = limits.reduce(|one, other| Some(one?.max(other?)));
        self.live.set_limit(longest.flatten());
    }
}
