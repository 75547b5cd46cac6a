//! Several keys in one step, under the mutexes of all their shards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::MutexGuard;
use std::time::Duration;

use tokio::time::Instant;

use super::channel::Signals;
use super::shard::Shard;
use super::{MemoryShared, SHARDS};
use crate::error::StoreError;
use crate::store::{Attempt, Grant, Outcome, SeveralOutcome};

/// Grants all, or none.
pub(super) fn all(
    shared: &MemoryShared,
    attempts: &[Attempt],
) -> Result<SeveralOutcome, StoreError> {
    let mut shards = LockedShards::lock(shared, attempts);
    let now = shards.now;
    for (index, attempt) in attempts.iter().enumerate() {
        if let Outcome::Refused { retry_after } =
            shards.of(attempt).evaluate(&impatient(attempt), now)?
        {
            return Ok(SeveralOutcome::Refused {
                index: Some(index),
                retry_after,
            });
        }
    }
    let mut grants = Vec::with_capacity(attempts.len());
    let mut woken = Vec::new();
    for (index, attempt) in attempts.iter().enumerate() {
        let (outcome, signals) = shards.of(attempt).acquire(&impatient(attempt), now)?;
        match outcome {
            Outcome::Granted { token } => grants.push(Grant { index, token }),
            Outcome::Refused { .. } => unreachable!("the keys differ, and no time has passed"),
        }
        woken.push(signals);
    }
    drop(shards);
    woken.into_iter().for_each(Signals::send);
    Ok(SeveralOutcome::Granted(grants))
}

/// Grants the first free key.
pub(super) fn any(
    shared: &MemoryShared,
    attempts: &[Attempt],
) -> Result<SeveralOutcome, StoreError> {
    let mut shards = LockedShards::lock(shared, attempts);
    let now = shards.now;
    let mut soonest = Duration::MAX;
    for (index, attempt) in attempts.iter().enumerate() {
        match shards.of(attempt).acquire(&impatient(attempt), now)? {
            (Outcome::Granted { token }, signals) => {
                drop(shards);
                signals.send();
                return Ok(SeveralOutcome::Granted(vec![Grant { index, token }]));
            }
            (Outcome::Refused { retry_after }, _) => soonest = soonest.min(retry_after),
        }
    }
    Ok(SeveralOutcome::Refused {
        index: None,
        retry_after: soonest,
    })
}

/// Attempts on several keys take no place in line.
fn impatient(attempt: &Attempt) -> Attempt {
    attempt.clone().patience(None)
}

/// The shards of some keys.
struct LockedShards<'a> {
    guards: BTreeMap<usize, MutexGuard<'a, Shard>>,
    /// The time of all decisions: one that counts for all of them must not expire between two.
    now: Instant,
}

impl<'a> LockedShards<'a> {
    /// Locks the shards in ascending order, so that there is no deadlock.
    fn lock(shared: &'a MemoryShared, attempts: &[Attempt]) -> Self {
        let places = attempts.iter();
        let places: BTreeSet<_> = places.map(|one| one.hold.key.place_among(SHARDS)).collect();
        let guards = places
            .into_iter()
            .map(|place| (place, super::lock(&shared.shards[place])));
        Self {
            guards: guards.collect(),
            now: Instant::now(),
        }
    }

    fn of(&mut self, attempt: &Attempt) -> &mut Shard {
        let place = attempt.hold.key.place_among(SHARDS);
        self.guards.get_mut(&place).expect("it was locked")
    }
}
