//! What is known of each hold.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Mutex as Turns;
use tokio::time::{Instant, sleep};
use tower_distributed_lock::error::{StoreError, StoreErrorKind};
use tower_distributed_lock::store::{Attempt, HoldStatus, LockStore};

use crate::QuorumStore;
use crate::ballot::{Vote, majority};
use crate::table::lock;

/// How much longer than its lease a hold is remembered: for an attempt that is made again, and for a late release.
const REMEMBERED: Duration = Duration::from_secs(10);

/// The pauses between two withdrawals in a store that fails: the first, and the longest. They double.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

/// One hold, from its first attempt to its end: what is left of it in each store, and what is known of it.
#[derive(Debug)]
pub(crate) struct Entry {
    /// What may be in each store. A question about the hold has its turn in the store until it is answered, so that none overtakes
    /// another: a release comes after the acquire before it.
    pub(crate) left: Vec<Turns<Left>>,
    /// It is locked for no await, and no other mutex is taken under it.
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

/// A hold that nobody has asked for yet.
pub(crate) const IS_NEW: (Left, Proof) = (Left::Nothing, Proof::Absent);

/// A hold that another client took, in all stores.
pub(crate) const IS_HELD: (Left, Proof) = (Left::Hold, Proof::Carries);

impl Entry {
    pub(crate) fn new(stores: usize, (left, proof): (Left, Proof)) -> Self {
        let known = Known {
            proofs: vec![proof; stores],
            wanted: None,
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

    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// From now on this is `wanted` in the stores, and those that `count` prove that the hold is held.
    pub(crate) fn decide(&mut self, wanted: Left, counts: impl Fn(usize) -> bool) {
        self.wanted = Some(wanted);
        for (at, proof) in self.proofs.iter_mut().enumerate() {
            *proof = match counts(at) {
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

impl<S: LockStore> QuorumStore<S> {
    /// Withdraws what is not wanted in a store, again and again, until the store has answered or the hold is forgotten.
    pub(crate) async fn clear(
        self,
        at: usize,
        attempt: Attempt,
        entry: Arc<Entry>,
        unanswered: bool,
    ) -> Vote<()> {
        let mut pause = PAUSE.0;
        loop {
            let mut left = entry.left[at].lock().await;
            let wanted = entry.known().wanted;
            if *left == Left::Nothing || wanted.is_none_or(|wanted| wanted == *left) {
                return Ok(());
            }
            if (*left, wanted) == (Left::Hold, Some(Left::Waiter)) {
                self.pace(&attempt.hold.key).pause(Duration::ZERO);
            }
            let unanswered = unanswered || *left == Left::Doubtful;
            let answer = self.shared.stores[at].withdraw(&attempt, unanswered).await;
            match &answer {
                Ok(()) => *left = Left::Nothing,
                // It may still take effect, even on a later hold with this name.
                Err(error) if is_unanswered(error) => *left = Left::Doubtful,
                Err(_) => {}
            }
            if answer.is_ok() || entry.known().is_over() {
                return answer;
            }
            drop(left);
            sleep(pause.mul_f64(0.75 + fastrand::f64() / 4.0)).await;
            pause = PAUSE.1.min(pause * 2);
        }
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
