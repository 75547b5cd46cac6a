//! A map that nearly always holds one entry.

use std::collections::BTreeMap;

/// An ordered map with room for one entry without allocation.
///
/// A key is either in `first` or in `rest`, never in both.
#[derive(Debug)]
pub(super) struct SmallMap<K, V> {
    first: Option<(K, V)>,
    /// Not empty if it is `Some`.
    #[expect(
        clippy::box_collection,
        reason = "a map is three words, a box is one, and it is seldom there"
    )]
    rest: Option<Box<BTreeMap<K, V>>>,
}

impl<K, V> Default for SmallMap<K, V> {
    fn default() -> Self {
        Self {
            first: None,
            rest: None,
        }
    }
}

impl<K: Copy + Ord, V> SmallMap<K, V> {
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none() && self.rest.is_none()
    }

    pub(super) fn get_mut(&mut self, key: K) -> Option<&mut V> {
        match &mut self.first {
            Some((first, value)) if *first == key => Some(value),
            _ => self.rest.as_mut()?.get_mut(&key),
        }
    }

    pub(super) fn contains(&self, key: K) -> bool {
        matches!(self.first, Some((first, _)) if first == key) || self.is_in_rest(key)
    }

    /// The value of `key`. If there is none, `value` makes it.
    pub(super) fn get_or_insert_with(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        if self.first.is_none() && !self.is_in_rest(key) {
            return &mut self.first.insert((key, value())).1;
        }
        match &mut self.first {
            Some((first, value)) if *first == key => value,
            _ => {
                let rest = self.rest.get_or_insert_default();
                rest.entry(key).or_insert_with(value)
            }
        }
    }

    pub(super) fn remove(&mut self, key: K) -> Option<V> {
        match self.first {
            Some((first, _)) if first == key => self.first.take().map(|(_, value)| value),
            _ => {
                let removed = self.rest.as_mut()?.remove(&key);
                self.rest.take_if(|rest| rest.is_empty());
                removed
            }
        }
    }

    #[cfg(feature = "console")]
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        let first = self.first.iter().map(|(_, value)| value);
        first.chain(self.rest.iter().flat_map(|rest| rest.values()))
    }

    pub(super) fn greatest_key(&self) -> Option<K> {
        let first = self.first.as_ref().map(|(first, _)| *first);
        let rest = self.rest.as_ref();
        first.max(rest.and_then(|rest| rest.last_key_value().map(|(last, _)| *last)))
    }

    fn is_in_rest(&self, key: K) -> bool {
        let rest = self.rest.as_ref();
        rest.is_some_and(|rest| rest.contains_key(&key))
    }
}

/// The number of each value.
pub(super) type Counts<K> = SmallMap<K, usize>;

impl<K: Copy + Ord> Counts<K> {
    pub(super) fn add(&mut self, value: K) {
        *self.get_or_insert_with(value, || 0) += 1;
    }

    /// Removes one `value`, which was added before.
    pub(super) fn subtract(&mut self, value: K) {
        let count = self
            .get_mut(value)
            .expect("only what was added is taken out");
        *count -= 1;
        if *count == 0 {
            self.remove(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Counts;

    #[test]
    fn a_value_is_there_as_often_as_it_was_added() {
        let mut random = fastrand::Rng::with_seed(1);
        let (mut counts, mut expected) = (Counts::default(), Vec::new());
        for _ in 0..10_000 {
            let value = random.u64(..6);
            if expected.is_empty() || random.u8(..5) < 2 {
                counts.add(value);
                expected.push(value);
            } else {
                let place = random.usize(..expected.len());
                counts.subtract(expected.swap_remove(place));
            }
            assert_eq!(counts.greatest_key(), expected.iter().max().copied());
            assert_eq!(counts.contains(value), expected.contains(&value));
            assert_eq!(counts.is_empty(), expected.is_empty());
        }
    }
}
