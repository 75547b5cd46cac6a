//! Values that are shared under a name.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use crate::watched::lock;

/// Values by their names.
///
/// A value stays while a task refers to it, or while it is `needed`. The others are removed when the table has doubled since it
/// was last swept, so that they never outnumber those that stay by more than [`FEW`].
#[derive(Debug)]
pub(crate) struct Table<K, V> {
    entries: Mutex<Entries<K, V>>,
    needed: fn(&V) -> bool,
}

#[derive(Debug)]
struct Entries<K, V> {
    values: HashMap<K, Arc<V>>,
    /// The number of values at which the table is swept.
    full: usize,
}

/// The number of values that are not worth a sweep.
const FEW: usize = 64;

impl<K: Hash + Eq + Clone, V> Table<K, V> {
    pub(crate) fn new(needed: fn(&V) -> bool) -> Self {
        let (values, full) = (HashMap::new(), FEW);
        Self {
            entries: Mutex::new(Entries { values, full }),
            needed,
        }
    }

    pub(crate) fn find(&self, name: &K) -> Option<Arc<V>> {
        lock(&self.entries).values.get(name).cloned()
    }

    /// Puts what `make` returns under the name. `make` is given what is there already.
    pub(crate) fn put(&self, name: &K, make: impl FnOnce(Option<Arc<V>>) -> Arc<V>) -> Arc<V> {
        let mut entries = lock(&self.entries);
        let made = make(entries.values.get(name).cloned());
        entries.values.insert(name.clone(), made.clone());
        if entries.values.len() > entries.full {
            self.sweep(&mut entries);
        }
        made
    }

    fn sweep(&self, entries: &mut Entries<K, V>) {
        let stays = |value: &Arc<V>| Arc::strong_count(value) > 1 || (self.needed)(value);
        entries.values.retain(|_, value| stays(value));
        entries.full = FEW + 2 * entries.values.len();
    }
}

#[cfg(test)]
impl<K: Hash + Eq + Clone, V> Table<K, V> {
    /// Whether a sweep leaves nothing.
    pub(crate) fn is_empty(&self) -> bool {
        let mut entries = lock(&self.entries);
        self.sweep(&mut entries);
        entries.values.is_empty()
    }
}
