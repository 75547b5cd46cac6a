//! The hottest keys of the last minutes.

use std::collections::HashMap;
use std::mem;
use std::time::Duration;

use tokio::time::Instant;
use tower_distributed_lock::LockKey;

/// How many keys are counted in a window. A further key replaces the one with the shortest total wait, so the hottest keys
/// are kept.
const KEPT: usize = 256;

/// The length of a window. The present one and the previous one are shown.
pub(crate) const WINDOW: Duration = Duration::from_secs(5 * 60);

/// The requests that did not get a key at once.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Waits {
    pub(crate) count: u64,
    /// The sum of their waits.
    pub(crate) sum: Duration,
}

/// The keys of two windows.
#[derive(Debug)]
pub(crate) struct ContendedKeys {
    began: Instant,
    now: HashMap<LockKey, Waits>,
    before: HashMap<LockKey, Waits>,
}

impl ContendedKeys {
    pub(crate) fn new(began: Instant) -> Self {
        Self {
            began,
            now: HashMap::new(),
            before: HashMap::new(),
        }
    }

    pub(crate) fn add(&mut self, key: &LockKey, waited: Duration, now: Instant) {
        self.turn_page(now);
        if self.now.len() == KEPT && !self.now.contains_key(key) {
            let coldest = self.now.iter().min_by_key(|(_, waits)| waits.sum);
            if let Some(coldest) = coldest.map(|(key, _)| key.clone()) {
                self.now.remove(&coldest);
            }
        }
        let waits = self.now.entry(key.clone()).or_default();
        waits.count += 1;
        waits.sum += waited;
    }

    /// The hottest first.
    pub(crate) fn all(&mut self, now: Instant) -> Vec<(LockKey, Waits)> {
        self.turn_page(now);
        let mut sums = self.now.clone();
        for (key, before) in &self.before {
            let waits = sums.entry(key.clone()).or_default();
            waits.count += before.count;
            waits.sum += before.sum;
        }
        let mut all: Vec<_> = sums.into_iter().collect();
        all.sort_by(|(a, hot), (b, cold)| cold.sum.cmp(&hot.sum).then(a.cmp(b)));
        all
    }

    fn turn_page(&mut self, now: Instant) {
        let age = now.saturating_duration_since(self.began);
        if age < WINDOW {
            return;
        }
        self.before = match age < 2 * WINDOW {
            true => mem::take(&mut self.now),
            false => HashMap::new(),
        };
        self.now.clear();
        self.began = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hottest_key_stays_whatever_comes() {
        let began = Instant::now();
        let mut keys = ContendedKeys::new(began);
        let hot = LockKey::new("hot");
        for n in 0..10 * KEPT {
            keys.add(&hot, Duration::from_millis(5), began);
            let cold = LockKey::new(format!("cold:{n}"));
            keys.add(&cold, Duration::from_millis(1), began);
        }
        let all = keys.all(began);
        assert_eq!(all.len(), KEPT);
        assert_eq!((&all[0].0, all[0].1.count), (&hot, 10 * KEPT as u64));
        assert_eq!(keys.all(began + WINDOW)[0].0, hot);
        assert!(keys.all(began + 3 * WINDOW).is_empty());
    }
}
