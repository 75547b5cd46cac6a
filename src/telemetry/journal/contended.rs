//! The hottest keys of the last minutes.

use std::mem;
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::{KeyMap, LockKey};

/// How many keys are counted in a window. A further key replaces the one with the shortest total wait, so the hottest keys
/// are kept.
const KEPT: usize = 256;

/// The length of a window. The present one and the previous one are shown.
pub(crate) const WINDOW: Duration = Duration::from_secs(5 * 60);

/// The waits for a key.
#[derive(Debug, Clone)]
pub(crate) struct Contended {
    pub(crate) key: LockKey,
    /// The number of requests that did not get it at once.
    pub(crate) waits: u64,
    /// The sum of their waits.
    pub(crate) waited: Duration,
}

/// The keys of two windows.
#[derive(Debug)]
pub(super) struct ContendedKeys {
    began: Instant,
    now: KeyMap<(u64, Duration)>,
    before: KeyMap<(u64, Duration)>,
}

impl ContendedKeys {
    pub(super) fn new(began: Instant) -> Self {
        Self {
            began,
            now: KeyMap::default(),
            before: KeyMap::default(),
        }
    }

    pub(super) fn add(&mut self, key: &LockKey, waited: Duration, now: Instant) {
        self.turn_page(now);
        if self.now.len() == KEPT && !self.now.contains_key(key) {
            let coldest = self.now.iter().min_by_key(|(_, (_, waited))| *waited);
            if let Some(coldest) = coldest.map(|(key, _)| key.clone()) {
                self.now.remove(&coldest);
            }
        }
        let (waits, sum) = self.now.entry(key.clone()).or_default();
        *waits += 1;
        *sum += waited;
    }

    /// The hottest first.
    pub(super) fn all(&mut self, now: Instant) -> Vec<Contended> {
        self.turn_page(now);
        let mut sums = self.now.clone();
        for (key, (waits, waited)) in &self.before {
            let sum = sums.entry(key.clone()).or_default();
            *sum = (sum.0 + waits, sum.1 + *waited);
        }
        let all = sums.into_iter();
        let all = all.map(|(key, (waits, waited))| Contended { key, waits, waited });
        let mut all: Vec<_> = all.collect();
        all.sort_by(|a, b| b.waited.cmp(&a.waited).then(a.key.cmp(&b.key)));
        all
    }

    fn turn_page(&mut self, now: Instant) {
        let age = now.saturating_duration_since(self.began);
        if age < WINDOW {
            return;
        }
        self.before = match age < 2 * WINDOW {
            true => mem::take(&mut self.now),
            false => KeyMap::default(),
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
        assert_eq!((&all[0].key, all[0].waits), (&hot, 10 * KEPT as u64));
        assert_eq!(keys.all(began + WINDOW)[0].key, hot);
        assert!(keys.all(began + 3 * WINDOW).is_empty());
    }
}
