//! A part of the keys, under one mutex.

use std::collections::hash_map::Entry as Place;
use std::time::SystemTime;

use tokio::time::Instant;

use super::channel::{Listeners, Signals, Wake};
use super::state::State;
use crate::error::StoreError;
use crate::lock::{FencingToken, KeyMap, LockKey, LockMode};
use crate::store::{Attempt, Fencing, LockEntry, Outcome};

/// The fewest new keys between two sweeps.
const SWEEP: usize = 128;

/// The keys of one shard. One mutex protects all of them: an operation takes a microsecond and concerns one key.
///
/// An operation leaves an entry only if the entry has content: a hold, a waiter, a listener or a withdrawal. An entry
/// that expires later stays until its key is used again or a sweep removes it. New keys cause the sweeps, so that the
/// store needs no task and no timer. `counter` is never below a token that was issued or reserved.
#[derive(Default)]
pub(super) struct Shard {
    entries: KeyMap<KeyEntry>,
    /// The largest token issued or reserved for any key of the shard. One counter for all of them keeps each key's tokens
    /// rising, and outlives every key.
    counter: u64,
    /// How many more keys may be added before the next sweep.
    until_sweep: usize,
}

/// The state of one key.
#[derive(Default)]
pub(super) struct KeyEntry {
    pub(super) state: State,
    pub(super) listeners: Listeners,
}

impl KeyEntry {
    /// A hold has ended, which wakes `wake`. Returns how many waiters outside the line are among them.
    pub(super) fn ended(&mut self, mode: LockMode, wake: &Wake, now: Instant) -> usize {
        if !mode.has_line() {
            return 0;
        }
        let notified = self.listeners.without_place(wake);
        self.state.give_outside_turn(notified, now);
        notified
    }

    fn is_idle(&self) -> bool {
        self.state.is_idle() && self.listeners.is_empty()
    }
}

impl Shard {
    /// Changes the entry of `key` as of now, and removes the entry if it has no content.
    pub(super) fn change<T>(
        &mut self,
        key: &LockKey,
        change: impl FnOnce(&mut KeyEntry, Instant) -> T,
    ) -> T {
        // Read under the mutex, so that a later decision has a later time.
        let now = Instant::now();
        self.change_at(now, key, |entry| change(entry, now))
    }

    /// The same at a time that was read under the mutex.
    fn change_at<T>(
        &mut self,
        now: Instant,
        key: &LockKey,
        change: impl FnOnce(&mut KeyEntry) -> T,
    ) -> T {
        let mut place = match self.entries.entry(key.clone()) {
            Place::Occupied(place) => place,
            Place::Vacant(place) => {
                let mut entry = KeyEntry::default();
                let result = change(&mut entry);
                if !entry.is_idle() {
                    place.insert(entry);
                    self.pay_for_sweep(now);
                }
                return result;
            }
        };
        let entry = place.get_mut();
        entry.state.expire(now);
        let result = change(entry);
        if entry.is_idle() {
            place.remove();
        }
        result
    }

    /// Decides about an attempt, and issues a token if it requests one. Returns the signals that a grant sends: if it leaves a
    /// permit free, that of the first in line.
    pub(super) fn acquire(
        &mut self,
        attempt: &Attempt,
        now: Instant,
    ) -> Result<(Outcome, Signals), StoreError> {
        let hold = &attempt.hold;
        let (mut outcome, signals) = self.change_at(now, &hold.key, |entry| {
            let outcome = entry.state.ask(attempt, now)?;
            let signals = match outcome {
                Outcome::Granted { .. } if hold.mode.is_permit() => {
                    entry.listeners.signals(&entry.state.next_permit())
                }
                _ => Signals::default(),
            };
            Ok::<_, StoreError>((outcome, signals))
        })?;
        if let Outcome::Granted { token } = &mut outcome {
            let fencing = attempt.fencing.filter(|_| hold.mode.is_exclusive());
            *token = fencing.map(|fencing| self.issue(fencing));
        }
        Ok((outcome, signals))
    }

    /// Decides as [`Shard::acquire`], and changes nothing.
    pub(super) fn evaluate(
        &mut self,
        attempt: &Attempt,
        now: Instant,
    ) -> Result<Outcome, StoreError> {
        self.change_at(now, &attempt.hold.key, |entry| {
            entry.state.evaluate(attempt, now)
        })
    }

    /// Issues a token, and reserves those that follow it.
    fn issue(&mut self, fencing: Fencing) -> FencingToken {
        let token = wall_clock_micros().max(self.counter + 1);
        self.counter = token + u64::from(fencing.reserve);
        FencingToken::new(token)
    }

    /// The held keys among those that `wanted` selects, in order.
    pub(super) fn held(&mut self, wanted: impl Fn(&LockKey) -> bool) -> Vec<LockEntry> {
        let now = Instant::now();
        let entries = self.entries.iter_mut().filter(|(key, _)| wanted(key));
        let mut held: Vec<_> = entries
            .filter_map(|(key, entry)| {
                entry.state.expire(now);
                let inspection = entry.state.inspect(now);
                let is_held = inspection.is_held();
                is_held.then(|| LockEntry::new(key.clone(), inspection))
            })
            .collect();
        held.sort_by(|a, b| a.key.cmp(&b.key));
        held
    }

    /// Whether no entry has content.
    pub(super) fn is_empty(&mut self, now: Instant) -> bool {
        self.sweep(now);
        self.entries.is_empty()
    }

    /// Counts a new key. A sweep runs after as many new keys as the last sweep left, so that each new key causes two
    /// checks at most.
    fn pay_for_sweep(&mut self, now: Instant) {
        match self.until_sweep.checked_sub(1) {
            Some(left) => self.until_sweep = left,
            None => self.sweep(now),
        }
    }

    /// Removes entries that have expired.
    #[cold]
    fn sweep(&mut self, now: Instant) {
        self.entries.retain(|_, entry| {
            entry.state.expire(now);
            !entry.is_idle()
        });
        self.until_sweep = SWEEP.max(self.entries.len());
        self.entries.shrink_to(2 * self.until_sweep);
    }
}

fn wall_clock_micros() -> u64 {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    // A clock before 1970 is ignored: the counter then rises by one each time.
    since_epoch.map_or(0, |since| since.as_micros() as u64)
}

#[cfg(test)]
#[path = "tests/shard.rs"]
mod tests;
