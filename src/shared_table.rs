//! Values that operations share while they use them.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use crate::sync::Mutex;

/// The fewest rows that are worth a sweep.
const SWEEP: usize = 256;

/// Values by their keys. A value that no operation refers to, and that is not needed otherwise, is forgotten: the table does
/// not return it any more, and drops it later.
///
/// The mutex protects the rows; the mutex of a value may be taken under it. A reference is made under the mutex, or from
/// another reference. So a value that has one reference under the mutex, that of its row, cannot get another one meanwhile.
pub(crate) struct SharedTable<K, V> {
    rows: Mutex<Rows<K, V>>,
    needed: fn(&V) -> bool,
}

struct Rows<K, V> {
    values: HashMap<K, Arc<V>>,
    /// With how many rows the next sweep is worth it.
    sweep_at: usize,
}

impl<K: Hash + Eq, V> SharedTable<K, V> {
    /// An empty table, of values for which `needed` says whether they are known while no operation refers to them.
    pub(crate) fn new(needed: fn(&V) -> bool) -> Self {
        let rows = Mutex::new(Rows {
            values: HashMap::new(),
            sweep_at: SWEEP,
        });
        Self { rows, needed }
    }

    /// The value, if it is known.
    pub(crate) fn find(&self, key: &K) -> Option<Arc<V>> {
        let rows = self.rows.lock();
        let value = rows.values.get(key)?;
        self.is_known(value).then(|| value.clone())
    }

    /// The value, or a new one if it is not known.
    pub(crate) fn find_or(&self, key: K, make: impl FnOnce() -> V) -> Arc<V> {
        let mut rows = self.rows.lock();
        if let Some(value) = rows.values.get(&key)
            && self.is_known(value)
        {
            return value.clone();
        }
        // Paid for by the rows that were added since the last sweep.
        if rows.values.len() >= rows.sweep_at {
            rows.values.retain(|_, value| self.is_known(value));
            rows.sweep_at = SWEEP.max(2 * rows.values.len());
        }
        let value = Arc::new(make());
        rows.values.insert(key, value.clone());
        value
    }

    /// Whether no value is known.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        let rows = self.rows.lock();
        !rows.values.values().any(|value| self.is_known(value))
    }

    fn is_known(&self, value: &Arc<V>) -> bool {
        Arc::strong_count(value) > 1 || (self.needed)(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_known_while_it_is_referred_to_or_needed() {
        let table = SharedTable::new(|needed: &bool| *needed);
        let value = table.find_or("used", || false);
        assert!(Arc::ptr_eq(&value, &table.find_or("used", || true)));
        drop(value);
        assert!(table.find(&"used").is_none() && table.is_empty());
        drop(table.find_or("needed", || true));
        assert!(table.find(&"needed").is_some() && !table.is_empty());
    }

    #[test]
    fn values_that_are_not_known_any_more_are_dropped() {
        let table = SharedTable::new(|_| false);
        let kept = table.find_or(0, || ());
        for n in 1..10 * SWEEP {
            table.find_or(n, || ());
        }
        assert!(table.rows.lock().values.len() <= SWEEP);
        assert!(Arc::ptr_eq(
            &kept,
            &table.find(&0).expect("it is referred to")
        ));
    }
}
