//! Sets of stores.

/// A set of stores, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Members(pub(super) u64);

impl Members {
    /// The largest odd number of stores that a set can hold.
    pub(super) const MAX: usize = 63;

    /// The first `count` stores.
    pub(super) fn first(count: usize) -> Self {
        Self((1 << count) - 1)
    }

    pub(super) fn insert(&mut self, store: usize) {
        self.0 |= 1 << store;
    }

    pub(super) fn remove(&mut self, store: usize) {
        self.0 &= !(1 << store);
    }

    pub(super) fn contains(self, store: usize) -> bool {
        self.0 & 1 << store != 0
    }

    pub(super) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(super) fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        (0..=Self::MAX).filter(move |&store| self.contains(store))
    }
}

impl FromIterator<usize> for Members {
    fn from_iter<T: IntoIterator<Item = usize>>(stores: T) -> Self {
        stores.into_iter().fold(Self::default(), |mut set, store| {
            set.insert(store);
            set
        })
    }
}
