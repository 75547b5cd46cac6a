//! The shards of a table.

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::Instant;

use super::key::{Key, KeyAt};
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

    /// Reads a key that is in use.
    pub(crate) fn read<T>(&self, key: &LockKey, read: impl FnOnce(&Key) -> T) -> Option<T> {
        self.shard_of(key).keys.get(key).map(read)
    }

    /// An event of a key that is in use: its value, and its effects, which the caller executes. An idle key is forgotten.
    pub(crate) fn event<T>(
        &self,
        key: &LockKey,
        now: Instant,
        event: impl FnOnce(&mut KeyAt<'_>) -> T,
    ) -> Option<(T, Out)> {
        let shard = &self.shards[key.place_among(SHARDS)];
        let state = &mut *shard.state.lock();
        let found = state.keys.get_mut(key)?;
        let changed = self.change(found, &mut state.wheel, (state.closed, false), now, event);
        if found.is_idle() {
            state.keys.remove(key);
            shard.has_less(&mut state.keys);
        }
        Some(changed)
    }

    /// The same for a key that may be new.
    pub(crate) fn entry<T>(
        &self,
        key: &LockKey,
        now: Instant,
        event: impl FnOnce(&mut KeyAt<'_>) -> T,
    ) -> (T, Out) {
        let shard = &self.shards[key.place_among(SHARDS)];
        let state = &mut *shard.state.lock();
        let len = state.keys.len();
        let (mut found, is_new) = match state.keys.entry(key.clone()) {
            Entry::Occupied(found) => (found, false),
            Entry::Vacant(vacant) => (vacant.insert_entry(Key::default()), true),
        };
        let is_one_too_many = is_new && self.is_full(len);
        let changed = self.change(
            found.get_mut(),
            &mut state.wheel,
            (state.closed, is_one_too_many),
            now,
            event,
        );
        if found.get().is_idle() {
            found.remove();
            shard.has_less(&mut state.keys);
        } else if is_new {
            shard.len.store(len + 1, Ordering::Relaxed);
        }
        changed
    }

    fn change<T>(
        &self,
        key: &mut Key,
        wheel: &mut Wheel,
        (closed, is_one_too_many): (bool, bool),
        now: Instant,
        event: impl FnOnce(&mut KeyAt<'_>) -> T,
    ) -> (T, Out) {
        let mut at = KeyAt {
            key,
            wheel,
            now,
            limits: self.limits,
            releases_later: self.releases_later,
            closed,
            is_one_too_many,
            out: Out::default(),
        };
        let value = event(&mut at);
        at.out.visit = at.wheel.take_earlier();
        (value, at.out)
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
