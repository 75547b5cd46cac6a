//! What is known of each hold.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Mutex as Turns;
use tokio::time::Instant;
use tower_distributed_lock::error::{StoreError, StoreErrorKind};
use tower_distributed_lock::store::HoldStatus;

use crate::ballot::majority;
use crate::table::lock;

/// How much longer than its lease a hold is remembered: for an attempt that is made again, and for a late release.
const REMEMBERED: Duration = Duration::from_secs(10);

/// One hold, from its first attempt to its end: what is left of it in each store, and what is known of it.
#[derive(Debug)]
pub(crate) struct Entry {
    /// What may be in each store. A question about the hold has its turn in the store until it is answered, so that none overtakes
    /// another: a release comes after the acquire before it.
    pub(crate) left: Vec<Turns<Left>>,
    /// It is locked for no await, and nothing is waited for under it.
    known: Mutex<Known>,
}

#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) proofs: Vec<Proof>,
    /// What stays in the stores. The rest is withdrawn; while it is not decided, nothing is.
    pub(crate) wanted: Option<Left>,
    /// Until when the hold is remembered, unless nothing is left of it before.
    until: Instant,
}

/// What may be in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    Nothing,
    /// The entry of a waiter.
    Waiter,
    Hold,
    /// A delayed copy of a question may still arrive. The store is not asked for this hold again before it has withdrawn it, and then
    /// it refuses any copy.
    Doubtful,
}

/// What a store can prove about a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proof {
    /// Nothing. It may have granted late: meanwhile the others may have lost their data, and another client may have had the lock.
    Absent,
    /// If it carries the hold, the hold was held *all the time*.
    Carries,
    /// The same, but a release went unanswered: if it carries the hold no longer, this proves nothing.
    Unsure,
    /// It has carried the hold until its release.
    Released,
}

/// A hold that no request has asked for yet.
pub(crate) const NEW: (Left, Proof) = (Left::Nothing, Proof::Absent);

/// A hold that another client took, in all stores.
pub(crate) const FOREIGN: (Left, Proof) = (Left::Hold, Proof::Carries);

impl Entry {
    pub(crate) fn new(stores: usize, (left, proof): (Left, Proof)) -> Self {
        let known = Known {
            proofs: vec![proof; stores],
            wanted: Some(left),
            until: Instant::now(),
        };
        Self {
            left: (0..stores).map(|_| Turns::new(left)).collect(),
            known: Mutex::new(known),
        }
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.known)
    }

    pub(crate) fn is_needed(&self) -> bool {
        let is_empty = |left: &Turns<_>| matches!(left.try_lock().as_deref(), Ok(Left::Nothing));
        let known = self.known();
        let is_known = known.proofs.iter().any(|proof| *proof != Proof::Absent);
        !known.is_over() && (is_known || !self.left.iter().all(is_empty))
    }
}

impl Known {
    /// Remembers the hold for one more lease.
    pub(crate) fn remember(&mut self, lease: Duration) {
        let until = after(Instant::now(), lease.saturating_add(REMEMBERED));
        self.until = self.until.max(until);
    }

    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// From now on this is `wanted` in the stores. If it is the hold, those that `count` prove that it is held.
    pub(crate) fn decide(&mut self, wanted: Left, counts: impl Fn(usize) -> bool) {
        self.wanted = Some(wanted);
        for (at, proof) in self.proofs.iter_mut().enumerate() {
            *proof = match wanted == Left::Hold && counts(at) {
                true => Proof::Carries,
                false => Proof::Absent,
            };
        }
    }

    /// Whether a majority of the stores has carried the hold all the time, if each that counts says what `said` says; `None` if
    /// that depends on the others.
    pub(crate) fn unbroken(
        &self,
        said: impl Fn(usize, Proof) -> Option<HoldStatus>,
    ) -> Option<HoldStatus> {
        let counted = (0..).zip(&self.proofs);
        let counted = counted.filter(|(_, proof)| **proof != Proof::Absent);
        let said: Vec<_> = counted.map(|(at, proof)| said(at, *proof)).collect();
        let that_say = |status| said.iter().filter(|&&said| said == Some(status)).count();
        let majority = majority(self.proofs.len());
        if said.len() - that_say(HoldStatus::Gone) < majority {
            return Some(HoldStatus::Gone);
        }
        (that_say(HoldStatus::Held) >= majority).then_some(HoldStatus::Held)
    }
}

pub(crate) fn is_unanswered(error: &StoreError) -> bool {
    error.kind() == StoreErrorKind::Unanswered
}

/// `duration` from `now`, or the far future if there is no such instant.
pub(crate) fn after(now: Instant, duration: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
    now + duration.min(FAR)
}
