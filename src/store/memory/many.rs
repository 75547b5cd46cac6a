//! Several keys in one step, under the mutexes of all their shards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::MutexGuard;
use std::time::Duration;

use super::MemoryShared;
use super::channel::Signals;
use super::shard::Shard;
use crate::error::StoreError;
use crate::store::{Attempt, Grant, Outcome, SeveralOutcome};

/// Grants all, or none.
pub(super) fn all(
    shared: &MemoryShared,
    attempts: &[Attempt],
) -> Result<SeveralOutcome, StoreError> {
    let mut shards = LockedShards::lock(shared, attempts);
    for (index, attempt) in attempts.iter().enumerate() {
        if let Some(retry_after) = shards.of(attempt).evaluate(attempt)? {
            return Ok(SeveralOutcome::Refused {
                index: Some(index),
                retry_after,
            });
        }
    }
    let mut grants = Vec::with_capacity(attempts.len());
    let mut signals = Vec::new();
    for (index, attempt) in attempts.iter().enumerate() {
        let shard = shards.of(attempt);
        let (outcome, _) = shard.acquire(&impatient(attempt))?;
        match outcome {
            Outcome::Granted { token } => grants.push(Grant { index, token }),
            Outcome::Refused { .. } => unreachable!("the keys differ, and nothing came between"),
        }
        signals.push(shard.signals_of_grant(&attempt.hold));
    }
    drop(shards);
    signals.into_iter().for_each(Signals::send);
    Ok(SeveralOutcome::Granted(grants))
}

/// Grants the first free key.
pub(super) fn any(
    shared: &MemoryShared,
    attempts: &[Attempt],
) -> Result<SeveralOutcome, StoreError> {
    let mut shards = LockedShards::lock(shared, attempts);
    let mut soonest = Duration::MAX;
    for (index, attempt) in attempts.iter().enumerate() {
        match shards.of(attempt).evaluate(attempt)? {
            Some(retry_after) => soonest = soonest.min(retry_after),
            None => {
                let shard = shards.of(attempt);
                let (outcome, _) = shard.acquire(&impatient(attempt))?;
                if let Outcome::Granted { token } = outcome {
                    let signals = shard.signals_of_grant(&attempt.hold);
                    drop(shards);
                    signals.send();
                    return Ok(SeveralOutcome::Granted(vec![Grant { index, token }]));
                }
            }
        }
    }
    Ok(SeveralOutcome::Refused {
        index: None,
        retry_after: soonest,
    })
}

/// Attempts on several keys take no place in line.
fn impatient(attempt: &Attempt) -> Attempt {
    Attempt {
        patience: None,
        ..attempt.clone()
    }
}

/// The shards of some keys.
struct LockedShards<'a> {
    shared: &'a MemoryShared,
    guards: BTreeMap<usize, MutexGuard<'a, Shard>>,
}

impl<'a> LockedShards<'a> {
    /// Locks the shards in ascending order, so that there is no deadlock.
    fn lock(shared: &'a MemoryShared, attempts: &[Attempt]) -> Self {
        let places = attempts
            .iter()
            .map(|attempt| shared.place(&attempt.hold.key));
        let places: BTreeSet<_> = places.collect();
        Self {
            shared,
            guards: places
                .into_iter()
                .map(|place| (place, super::lock(&shared.shards[place])))
                .collect(),
        }
    }

    fn of(&mut self, attempt: &Attempt) -> &mut Shard {
        let place = self.shared.place(&attempt.hold.key);
        self.guards.get_mut(&place).expect("it was locked")
    }
}
