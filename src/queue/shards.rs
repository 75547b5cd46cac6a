//! The keys that are in use.

use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::fairness::FairnessYield;
use super::key_state::KeyState;
use super::owed_turns::OwedTurns;
use crate::error::LockError;
use crate::lock::{KeyMap, LockKey};
use crate::sync::Mutex;
use tokio::time::Instant;

/// Enough that threads rarely contend, and few enough to be cheap.
const SHARDS: usize = 16;

/// A map with this capacity is never shrunk.
const SMALL: usize = 64;

/// With this number of keys, every shard has about the same part.
const MANY: usize = 4096;

/// The state of every key that a request of this process holds or waits for, in shards. Each shard's mutex protects
/// the states of its keys and what is owed on others, and is never held across an await.
///
/// A key is in the map from the first transition of its [`KeyState`] until a transition that leaves it idle.
pub(super) struct Shards {
    shards: [QueueShard; SHARDS],
    max_keys: usize,
}

#[derive(Default)]
struct QueueShard {
    state: Mutex<ShardState>,
    /// The number of keys. It is written under the mutex, and read without it.
    len: AtomicUsize,
}

#[derive(Default)]
struct ShardState {
    keys: KeyMap<KeyState>,
    owed: OwedTurns,
}

impl Shards {
    /// `max_keys`: the limit of keys in use. Threads that race for the last one may exceed it by a few.
    pub(super) fn new(max_keys: usize) -> Self {
        Self {
            shards: Default::default(),
            max_keys,
        }
    }

    /// Lets a request change the state of its key, which is created if needed.
    pub(super) fn enter<T>(
        &self,
        key: &LockKey,
        enter: impl FnOnce(&mut KeyState, &mut OwedTurns) -> Result<T, LockError>,
    ) -> Result<T, LockError> {
        self.change(key, |state, owed, others| match others {
            Some(others) if self.is_full(others) => Err(LockError::Overloaded),
            _ => enter(state, owed),
        })
    }

    /// Changes the state of a key.
    pub(super) fn with<T>(&self, key: &LockKey, change: impl FnOnce(&mut KeyState) -> T) -> T {
        self.change(key, |state, _, _| change(state))
    }

    /// Keeps what is owed to other processes, for the next request for this key.
    pub(super) fn owe(&self, key: &LockKey, fairness: Box<FairnessYield>, now: Instant) {
        self.shard(key).state.lock().owed.insert(key, fairness, now);
    }

    /// Looks at the state of a key that is in use.
    pub(super) fn look<T>(&self, key: &LockKey, look: impl FnOnce(&KeyState) -> T) -> Option<T> {
        self.shard(key).state.lock().keys.get(key).map(look)
    }

    /// Looks at every key that is in use, shard by shard.
    pub(super) fn look_at_all(&self, mut look: impl FnMut(&LockKey, &KeyState)) {
        for shard in &self.shards {
            for (key, state) in &shard.state.lock().keys {
                look(key, state);
            }
        }
    }

    /// Looks at the keys of one shard; `None` after the last one.
    pub(super) fn look_at_page<T>(
        &self,
        page: usize,
        look: impl Fn(&LockKey, &KeyState) -> T,
    ) -> Option<Vec<T>> {
        let shard = self.shards.get(page)?.state.lock();
        Some(
            shard
                .keys
                .iter()
                .map(|(key, state)| look(key, state))
                .collect(),
        )
    }

    pub(super) fn len(&self) -> usize {
        let lens = self.shards.iter();
        lens.map(|shard| shard.len.load(Ordering::Relaxed)).sum()
    }

    /// Whether a shard with `others` keys has no room for one more.
    fn is_full(&self, others: usize) -> bool {
        // Keys are distributed at random: with many keys, no shard has less than half of its part when the map is
        // full.
        let is_sparse = self.max_keys >= MANY && others < self.max_keys / SHARDS / 2;
        !is_sparse && self.len() >= self.max_keys
    }

    /// `change` gets the number of other keys in the shard if this key is new.
    fn change<T>(
        &self,
        key: &LockKey,
        change: impl FnOnce(&mut KeyState, &mut OwedTurns, Option<usize>) -> T,
    ) -> T {
        let shard = self.shard(key);
        let ShardState { keys, owed } = &mut *shard.state.lock();
        let others = keys.len();
        // A single map operation: a second one would cost more than the clone of the key.
        let (mut slot, is_new) = match keys.entry(key.clone()) {
            Entry::Occupied(slot) => (slot, false),
            Entry::Vacant(slot) => (slot.insert_entry(KeyState::default()), true),
        };
        let result = change(slot.get_mut(), owed, is_new.then_some(others));
        match slot.get().is_idle() {
            true => {
                slot.remove();
                shrink(keys);
            }
            false if is_new => {}
            false => return result,
        }
        shard.len.store(keys.len(), Ordering::Relaxed);
        result
    }

    fn shard(&self, key: &LockKey) -> &QueueShard {
        &self.shards[key.place_among(SHARDS)]
    }
}

/// Frees the memory after many keys have left. It runs rarely, so that its cost stays below that of the keys.
fn shrink(keys: &mut KeyMap<KeyState>) {
    if keys.capacity() > SMALL && keys.len() < keys.capacity() / 8 {
        keys.shrink_to((keys.len() * 2).max(SMALL / 2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::{Lease, LockMode};
    use crate::queue::key_state::Placement;
    use crate::queue::{At, HandoverLimits, Terms};
    use crate::telemetry::Route;

    fn terms() -> Terms {
        Terms {
            mode: LockMode::Reentrant,
            owner: None,
            lease: Lease::default(),
            max_hold: None,
            fenced: false,
            max_waiters: Some(1),
            route: Route::default(),
        }
    }

    #[test]
    fn the_memory_of_many_keys_is_given_back() {
        let at = At {
            now: Instant::now(),
            handover_limits: HandoverLimits::default(),
            at_once: false,
        };
        let shards = Shards::new(usize::MAX);
        let keys: Vec<_> = (0..20_000).map(|n| LockKey::new(format!("{n}"))).collect();
        let intents: Vec<_> = keys
            .iter()
            .map(
                |key| match shards.enter(key, |state, _| state.place(&terms(), at)) {
                    Ok(Placement::Ask(intent)) => intent,
                    _ => unreachable!("the key is free"),
                },
            )
            .collect();
        assert_eq!(shards.len(), keys.len());
        for (key, intent) in keys.iter().zip(&intents) {
            shards.with(key, |state| state.yielded(intent, Default::default(), at));
        }
        assert_eq!(shards.len(), 0);
        for shard in &shards.shards {
            let capacity = shard.state.lock().keys.capacity();
            assert!(capacity <= 2 * SMALL, "room for {capacity} keys");
        }
    }
}
