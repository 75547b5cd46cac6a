//! Values that are shared under a name.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Values by their names.
///
/// A value stays while a task refers to it, or while it is `needed`. The others are removed when the table is full, before it grows,
/// so that it never has more than twice as much room as it needed at some time.
#[derive(Debug)]
pub(crate) struct Table<K, V> {
    values: Mutex<HashMap<K, Arc<V>>>,
    needed: fn(&V) -> bool,
}

/// The room for values that are not worth a sweep.
const FEW: usize = 64;

impl<K: Hash + Eq, V> Table<K, V> {
    pub(crate) fn new(needed: fn(&V) -> bool) -> Self {
        let values = Mutex::default();
        Self { values, needed }
    }

    /// The value under the name. If there is none, it is made.
    pub(crate) fn get(&self, name: K, make: impl FnOnce() -> V) -> Arc<V> {
        let mut values = lock(&self.values);
        if values.len() == values.capacity() {
            values.retain(|_, value| Arc::strong_count(value) > 1 || (self.needed)(value));
            let as_many = values.len().max(FEW);
            values.reserve(as_many);
        }
        let made = || Arc::new(make());
        values.entry(name).or_insert_with(made).clone()
    }
}

/// Locks a mutex whose state changes in steps that do not panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<K: Hash + Eq, V> Table<K, V> {
        /// Whether a sweep leaves nothing.
        pub(crate) fn is_empty(&self) -> bool {
            let stays = |value: &Arc<V>| Arc::strong_count(value) > 1 || (self.needed)(value);
            !lock(&self.values).values().any(stays)
        }
    }

    #[test]
    fn what_no_one_needs_is_removed_before_the_table_grows() {
        let table = Table::new(|needed: &bool| *needed);
        let kept: Vec<_> = (0..10).map(|n| table.get(n, || false)).collect();
        for n in 10..10_000 {
            table.get(n, || n % 1000 == 0);
        }
        let room = lock(&table.values).capacity();
        assert!(room < 4 * FEW, "{room}");
        assert!(*table.get(9_000, || false), "it is needed");
        assert!(Arc::ptr_eq(&kept[0], &table.get(0, || true)));
    }
}
