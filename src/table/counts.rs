//! How often each value is there.

use std::collections::BTreeMap;

/// The number of each value, with room for one value without allocation.
///
/// A value may be counted both in `first` and in `rest`.
#[derive(Debug)]
pub(super) struct Counts<K> {
    first: Option<(K, usize)>,
    rest: BTreeMap<K, usize>,
}

impl<K> Default for Counts<K> {
    fn default() -> Self {
        Self {
            first: None,
            rest: BTreeMap::new(),
        }
    }
}

impl<K: Copy + Ord> Counts<K> {
    pub(super) fn contains(&self, value: K) -> bool {
        matches!(self.first, Some((first, _)) if first == value) || self.rest.contains_key(&value)
    }

    pub(super) fn greatest(&self) -> Option<K> {
        let first = self.first.map(|(first, _)| first);
        first.max(self.rest.last_key_value().map(|(last, _)| *last))
    }

    pub(super) fn add(&mut self, value: K) {
        match &mut self.first {
            None => self.first = Some((value, 1)),
            Some((first, count)) if *first == value => *count += 1,
            Some(_) => *self.rest.entry(value).or_default() += 1,
        }
    }

    /// Removes one `value`, which was added before.
    pub(super) fn subtract(&mut self, value: K) {
        if let Some((first, count)) = &mut self.first
            && *first == value
        {
            *count -= 1;
            self.first.take_if(|(_, count)| *count == 0);
            return;
        }
        let count = self.rest.get_mut(&value);
        let count = count.expect("only what was added is taken out");
        *count -= 1;
        if *count == 0 {
            self.rest.remove(&value);
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
            assert_eq!(counts.greatest(), expected.iter().max().copied());
            assert_eq!(counts.contains(value), expected.contains(&value));
        }
    }
}
