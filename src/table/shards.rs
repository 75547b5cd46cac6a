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

/// The key of an event, in its shard.
pub(super) struct Place<'a> {
    pub(super) key: &'a mut Key,
    pub(super) wheel: &'a mut Wheel,
    pub(super) closed: bool,
    /// How many keys the shard had before, if this one is new.
    pub(super) others: Option<usize>,
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

    /// Changes a key that is in use, and forgets it if it is idle then.
    pub(super) fn with<T>(&self, key: &LockKey, change: impl FnOnce(Place<'_>) -> T) -> Option<T> {
        let shard = &self.shards[key.place_among(SHARDS)];
        let state = &mut *shard.state.lock();
        let found = state.keys.get_mut(key)?;
        let changed = change(Place {
            key: found,
            wheel: &mut state.wheel,
            closed: state.closed,
            others: None,
        });
        if found.is_idle() {
            state.keys.remove(key);
            shard.has_less(&mut state.keys);
        }
        Some(changed)
    }

    /// The same for a key that may be new.
    pub(super) fn insert<T>(&self, key: &LockKey, change: impl FnOnce(Place<'_>) -> T) -> T {
        let shard = &self.shards[key.place_among(SHARDS)];
        let state = &mut *shard.state.lock();
        let len = state.keys.len();
        let (mut found, others) = match state.keys.entry(key.clone()) {
            Entry::Occupied(found) => (found, None),
            Entry::Vacant(vacant) => (vacant.insert_entry(Key::default()), Some(len)),
        };
        let changed = change(Place {
            key: found.get_mut(),
            wheel: &mut state.wheel,
            closed: state.closed,
            others,
        });
        if found.get().is_idle() {
            found.remove();
            shard.has_less(&mut state.keys);
        } else if others.is_some() {
            shard.len.store(len + 1, Ordering::Relaxed);
        }
        changed
    }
}

impl TableShard {
    /// A key was forgotten.
    fn has_less(&self, keys: &mut KeyMap<Key>) {
        // Frees the memory after many keys have left. It runs rarely, so that its cost stays below that of the keys.
        if keys.capacity() > SMALL && keys.len() < keys.capacity() / 8 {
            keys.shrink_to((keys.len() * 2).max(SMALL / 2));
        }
        self.len.store(keys.len(), Ordering::Relaxed);
    }
}
