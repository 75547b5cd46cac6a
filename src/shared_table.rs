//! Values that operations share while they use them.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::Arc;

use crate::sync::Mutex;

/// The fewest rows that are worth a sweep.
const SWEEP: usize = 256;

/// Values by their keys. A value that no operation refers to, and that is not needed otherwise, leaves the table with its last
/// [`SharedRow`]. One that is needed for some time is forgotten when that is over, and swept out later.
pub(crate) struct SharedTable<K, V>(Arc<Table<K, V>>);

/// The mutex protects the rows; the mutex of a value may be taken under it. A reference is made under the mutex, or from another
/// reference, and ends under the mutex. So a value that has one reference under the mutex, that of its row, cannot get another
/// one meanwhile.
struct Table<K, V> {
    rows: Mutex<Rows<K, V>>,
    needed: fn(&V) -> bool,
}

struct Rows<K, V> {
    values: HashMap<K, Arc<V>>,
    /// With how many rows the next sweep is worth it.
    sweep_at: usize,
}

/// A reference to a value of a [`SharedTable`].
pub(crate) struct SharedRow<K: Hash + Eq, V> {
    key: K,
    /// Present until it is dropped.
    value: Option<Arc<V>>,
    table: Arc<Table<K, V>>,
}

impl<K: Hash + Eq + Clone, V> SharedTable<K, V> {
    /// An empty table, of values for which `needed` says whether they are known while no operation refers to them.
    pub(crate) fn new(needed: fn(&V) -> bool) -> Self {
        let rows = Mutex::new(Rows {
            values: HashMap::new(),
            sweep_at: SWEEP,
        });
        Self(Arc::new(Table { rows, needed }))
    }

    /// The value, or a new one if it is not known.
    pub(crate) fn find_or(&self, key: &K, make: impl FnOnce() -> V) -> SharedRow<K, V> {
        let mut rows = self.0.rows.lock();
        if let Some(value) = rows.values.get(key)
            && self.0.is_known(value)
        {
            return self.row(key, value);
        }
        // Paid for by the rows that were added since the last sweep.
        if rows.values.len() >= rows.sweep_at {
            rows.values.retain(|_, value| self.0.is_known(value));
            rows.sweep_at = SWEEP.max(2 * rows.values.len());
        }
        let value = Arc::new(make());
        rows.values.insert(key.clone(), value.clone());
        self.row(key, &value)
    }

    fn row(&self, key: &K, value: &Arc<V>) -> SharedRow<K, V> {
        SharedRow {
            key: key.clone(),
            value: Some(value.clone()),
            table: self.0.clone(),
        }
    }

    /// Whether no value is known.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        let rows = self.0.rows.lock();
        !rows.values.values().any(|value| self.0.is_known(value))
    }
}

impl<K, V> Table<K, V> {
    fn is_known(&self, value: &Arc<V>) -> bool {
        Arc::strong_count(value) > 1 || (self.needed)(value)
    }
}

impl<K: Hash + Eq, V> Deref for SharedRow<K, V> {
    type Target = V;

    fn deref(&self) -> &V {
        self.value.as_ref().expect("it is there until the drop")
    }
}

impl<K: Hash + Eq + Clone, V> Clone for SharedRow<K, V> {
    fn clone(&self) -> Self {
        Self {
            key: self.key.clone(),
            value: self.value.clone(),
            table: self.table.clone(),
        }
    }
}

impl<K: Hash + Eq, V> Drop for SharedRow<K, V> {
    fn drop(&mut self) {
        let mut rows = self.table.rows.lock();
        // The row keeps the value alive: no code of the value runs under the mutex.
        self.value = None;
        let row = rows.values.get(&self.key);
        let left = match row.is_some_and(|value| !self.table.is_known(value)) {
            true => rows.values.remove(&self.key),
            false => None,
        };
        drop(rows);
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use super::*;

    #[test]
    fn a_value_is_known_while_it_is_referred_to_or_needed() {
        let table = SharedTable::new(|needed: &bool| *needed);
        let value = table.find_or(&"used", || false);
        assert!(!*table.find_or(&"used", || true));
        drop(value.clone());
        assert!(!table.is_empty());
        drop(value);
        assert!(table.is_empty());
        drop(table.find_or(&"needed", || true));
        assert!(!table.is_empty());
    }

    #[test]
    fn a_value_that_is_not_needed_leaves_with_its_last_reference() {
        let table = SharedTable::new(|_| false);
        let kept = table.find_or(&0, || ());
        let others: Vec<_> = (1..10 * SWEEP).map(|n| table.find_or(&n, || ())).collect();
        drop((others.clone(), others));
        assert_eq!(table.0.rows.lock().values.len(), 1);
        drop(kept);
        assert_eq!(table.0.rows.lock().values.len(), 0);
    }

    #[test]
    fn values_that_are_not_needed_any_more_are_swept_out() {
        static NEEDED: AtomicBool = AtomicBool::new(true);
        let table = SharedTable::new(|_| NEEDED.load(Relaxed));
        for n in 0..SWEEP {
            drop(table.find_or(&n, || ()));
        }
        assert_eq!(table.0.rows.lock().values.len(), SWEEP);
        NEEDED.store(false, Relaxed);
        drop(table.find_or(&SWEEP, || ()));
        assert_eq!(table.0.rows.lock().values.len(), 0);
    }
}
