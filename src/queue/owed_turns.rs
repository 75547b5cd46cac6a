//! The turns that this process owes to other processes on keys that it does not use now.

use tokio::time::Instant;

use super::fairness::FairnessYield;
use crate::lock::{KeyMap, LockKey};

/// With fewer entries than this, none is searched for.
const FEW: usize = 64;

/// The yields that no request of this process waited for.
///
/// A task that asks again right after its release finds its key idle, so the yield is kept beside the keys in use. A yield
/// is over some milliseconds after its release. Each insertion beyond `sweep_at` entries removes those that are over, so
/// there are never more than twice as many entries as yields that are not over, or [`FEW`].
#[derive(Default)]
pub(super) struct OwedTurns {
    keys: KeyMap<Box<FairnessYield>>,
    sweep_at: usize,
}

impl OwedTurns {
    pub(super) fn insert(&mut self, key: &LockKey, fairness: Box<FairnessYield>, now: Instant) {
        if self.keys.len() >= self.sweep_at.max(FEW) {
            self.keys.retain(|_, fairness| !fairness.is_over(now));
            self.sweep_at = 2 * self.keys.len();
            self.keys.shrink_to(self.sweep_at);
        }
        self.keys.insert(key.clone(), fairness);
    }

    /// The yield before the next request for this key, unless it is over.
    pub(super) fn take(&mut self, key: &LockKey, now: Instant) -> Option<Box<FairnessYield>> {
        if self.keys.is_empty() {
            return None;
        }
        self.keys
            .remove(key)
            .filter(|fairness| !fairness.is_over(now))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    fn owed(now: Instant) -> Box<FairnessYield> {
        Box::new(FairnessYield::after(1, false, now))
    }

    #[test]
    fn a_yield_is_taken_once_and_ends_soon() {
        let (key, now) = (LockKey::new("order:42"), Instant::now());
        let mut turns = OwedTurns::default();
        turns.insert(&key, owed(now), now);
        assert!(turns.take(&key, now).is_some());
        assert!(turns.take(&key, now).is_none());
        turns.insert(&key, owed(now), now);
        assert!(turns.take(&key, now + Duration::from_secs(1)).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_yields_that_are_over_is_bounded() {
        let mut turns = OwedTurns::default();
        for n in 0..100_000 {
            if n % 100 == 0 {
                advance(Duration::from_millis(1)).await;
            }
            let now = Instant::now();
            turns.insert(&LockKey::new(format!("{n}")), owed(now), now);
        }
        // Those of two milliseconds are not over.
        assert!(turns.keys.len() <= 2 * 300, "{}", turns.keys.len());
        let capacity = turns.keys.capacity();
        assert!(capacity <= 4 * 300, "room for {capacity}");
    }
}
