//! The shards of a table.

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::key::Key;
use super::out::Out;
use super::wheel::Wheel;
use super::{SHARDS, Table};
use crate::hold::Held;
use crate::lock::{KeyMap, LockKey};
use crate::sync::{Mutex, MutexGuard};

#[derive(Default)]
pub(super) struct TableShard {
    pub(super) state: Mutex<Shard>,
    /// How many keys there are. It is written under the mutex, and read without it.
    len: AtomicUsize,
}

/// The keys of one shard, and its part of the wheel of renewals. Nothing but the mutexes of holds and slots is taken under its mutex.
#[derive(Default)]
pub(crate) struct Shard {
    pub(super) keys: KeyMap<Key>,
    pub(crate) wheel: Wheel,
    /// The client was shut down: nothing is granted any more.
    pub(super) closed: bool,
}

/// With fewer keys, each request counts them exactly.
const MANY: usize = 64 * SHARDS;

/// A map with fewer keys keeps its memory.
const SMALL: usize = 256;

impl Table {
    /// Nothing is granted any more. Returns all holds, and tells all requests that wait.
    pub(crate) fn close(&self) -> (Vec<Arc<Held>>, Vec<Out>) {
        let (mut holds, mut outs) = (Vec::new(), Vec::new());
        for shard in &self.shards {
            let mut state = shard.state.lock();
            state.closed = true;
            for key in state.keys.values_mut() {
                holds.extend(key.holds().map(|shared| shared.held.clone()));
                outs.push(key.closed());
            }
        }
        (holds, outs)
    }

    /// The number of keys that requests of this process hold or wait for.
    pub(crate) fn len(&self) -> usize {
        let lens = self.shards.iter();
        lens.map(|shard| shard.len.load(Ordering::Relaxed)).sum()
    }

    /// One shard, for the keeper.
    pub(crate) fn shard(&self, index: usize) -> MutexGuard<'_, Shard> {
        self.shards[index].state.lock()
    }

    /// That of a key.
    pub(crate) fn shard_of(&self, key: &LockKey) -> MutexGuard<'_, Shard> {
        self.shard(key.place_among(SHARDS))
    }

    /// Whether a shard with `others` keys has no room for one more.
    pub(super) fn is_full(&self, others: usize) -> bool {
        // Keys are distributed at random: with many keys, no shard has less than half of its part when the map is full.
        let is_sparse = self.max_keys >= MANY && others < self.max_keys / SHARDS / 2;
        !is_sparse && self.len() >= self.max_keys
    }

    pub(super) fn read<T>(&self, key: &LockKey, read: impl FnOnce(&Key) -> T) -> Option<T> {
        self.shard_of(key).keys.get(key).map(read)
    }

    /// Changes a key that is in use.
    pub(super) fn with<T>(
        &self,
        key: &LockKey,
        change: impl FnOnce(&mut Key, &mut Wheel) -> T,
    ) -> Option<T> {
        self.change(key, false, |shard, _| {
            let Shard { keys, wheel, .. } = shard;
            Some(change(keys.get_mut(key)?, wheel))
        })
    }

    /// Changes a shard, and forgets the key if it is idle then. `inserts` it first; then `change` gets whether it is new.
    pub(super) fn change<T>(
        &self,
        key: &LockKey,
        inserts: bool,
        change: impl FnOnce(&mut Shard, bool) -> T,
    ) -> T {
        let shard = &self.shards[key.place_among(SHARDS)];
        let mut state = shard.state.lock();
        let is_new = inserts
            && match state.keys.entry(key.clone()) {
                Entry::Occupied(_) => false,
                Entry::Vacant(vacant) => {
                    vacant.insert(Key::default());
                    true
                }
            };
        let result = change(&mut state, is_new);
        let keys = &mut state.keys;
        if keys.get(key).is_some_and(Key::is_idle) {
            keys.remove(key);
            // Frees the memory after many keys have left. It runs rarely, so that its cost stays below that of the keys.
            if keys.capacity() > SMALL && keys.len() < keys.capacity() / 8 {
                keys.shrink_to((keys.len() * 2).max(SMALL / 2));
            }
        }
        shard.len.store(keys.len(), Ordering::Relaxed);
        result
    }
}
