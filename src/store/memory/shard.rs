//! A part of the keys, under one mutex.

use std::time::SystemTime;

use tokio::time::Instant;

use super::channel::{Listeners, Signals, Wake};
use super::state::State;
use crate::error::StoreError;
use crate::lock::{FencingToken, KeyMap, LockKey, LockMode};
use crate::store::{Attempt, Fencing, LockEntry, Outcome};

/// How many keys each new key sweeps: more than one, so that the sweep gets around.
const SWEPT: usize = 2;

/// For how many keys a shard keeps room, whatever it has.
const ROOM: usize = 128;

/// How many keys a list looks at before it lets others use the shard.
const LOOKS: usize = 64;

/// The keys of one shard. One mutex protects all of them: an operation takes a microsecond and concerns one key, or a bounded number.
///
/// Between calls, a key is here if it has content: a hold, a waiter, a listener, a withdrawal, a limit. What expires later stays until
/// its key is used again or swept; new keys sweep, so that the store needs no task and no timer. `places` says where each of `keys`
/// is. `counter` is no less than any token that was issued or reserved.
#[derive(Default)]
pub(super) struct Shard {
    /// The last one takes the place of one that is removed. So a list or a sweep that goes from the last place to the first misses
    /// no key that is here all the time.
    keys: Vec<(LockKey, Key)>,
    places: KeyMap<usize>,
    /// The keys behind this place are swept.
    swept: usize,
    /// The largest token issued or reserved for any key of the shard. One counter for all of them keeps each key's tokens
    /// rising, and outlives every key.
    counter: u64,
}

/// The state of one key.
#[derive(Default)]
pub(super) struct Key {
    pub(super) state: State,
    pub(super) listeners: Listeners,
}

impl Key {
    /// The signals of these channels.
    pub(super) fn signals(&self, wake: &Wake) -> Signals {
        self.listeners.signals(wake).0
    }

    /// A hold has ended, which wakes `wake`. Returns the signals, and how many waiters outside the line are among them.
    pub(super) fn ended(&mut self, mode: LockMode, wake: &Wake, now: Instant) -> (Signals, usize) {
        let (signals, outside) = self.listeners.signals(wake);
        if !mode.has_line() {
            return (signals, 0);
        }
        self.state.give_outside_turn(outside, now);
        (signals, outside)
    }

    fn is_idle(&self) -> bool {
        self.state.is_idle() && self.listeners.is_empty()
    }
}

impl Shard {
    /// Changes the state of `key`.
    pub(super) fn change<T>(
        &mut self,
        key: &LockKey,
        now: Instant,
        change: impl FnOnce(&mut Key) -> T,
    ) -> T {
        let Some(&place) = self.places.get(key) else {
            let mut new = Key::default();
            let result = change(&mut new);
            if !new.is_idle() {
                self.places.insert(key.clone(), self.keys.len());
                self.keys.push((key.clone(), new));
                self.sweep(SWEPT, now);
            }
            return result;
        };
        let (_, present) = &mut self.keys[place];
        present.state.expire(now);
        let result = change(present);
        if present.is_idle() {
            self.remove(place);
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
        let mode = attempt.hold.mode;
        let (mut outcome, signals) = self.change(&attempt.hold.key, now, |key| {
            let outcome = key.state.ask(attempt, now)?;
            let signals = match outcome {
                Outcome::Granted { .. } if mode.is_permit() => {
                    key.signals(&key.state.wake_for_next_permit())
                }
                _ => Signals::default(),
            };
            Ok::<_, StoreError>((outcome, signals))
        })?;
        if let Outcome::Granted { token } = &mut outcome {
            let fencing = attempt.fencing.filter(|_| mode.is_exclusive());
            *token = fencing.map(|fencing| self.issue(fencing));
        }
        Ok((outcome, signals))
    }

    /// Issues a token, and reserves those that follow it.
    fn issue(&mut self, fencing: Fencing) -> FencingToken {
        let token = wall_clock_micros().max(self.counter + 1);
        self.counter = token + u64::from(fencing.reserve);
        FencingToken::new(token)
    }

    /// Adds the held keys that are `wanted` before the place `end` to a list, until the list is `full` or it has looked at some.
    /// Returns where it has stopped: 0 if it has seen all.
    pub(super) fn list(
        &mut self,
        end: usize,
        wanted: impl Fn(&LockKey) -> bool,
        entries: &mut Vec<LockEntry>,
        full: usize,
    ) -> usize {
        let now = Instant::now();
        let mut end = end.min(self.keys.len());
        for _ in 0..LOOKS {
            if end == 0 || entries.len() >= full {
                break;
            }
            end -= 1;
            let (name, key) = &mut self.keys[end];
            if wanted(name) {
                key.state.expire(now);
                if !key.state.is_free() {
                    entries.push(LockEntry::new(name.clone(), key.state.inspect(now)));
                }
            }
        }
        end
    }

    /// Whether no key has content.
    pub(super) fn is_empty(&mut self, now: Instant) -> bool {
        self.swept = self.keys.len();
        self.sweep(self.keys.len(), now);
        self.keys.is_empty()
    }

    /// Removes those of the next `count` keys that have no content any more.
    fn sweep(&mut self, count: usize, now: Instant) {
        for _ in 0..count {
            let end = self.swept.min(self.keys.len());
            self.swept = end.checked_sub(1).unwrap_or(self.keys.len());
            if let Some((_, key)) = self.keys.get_mut(self.swept) {
                key.state.expire(now);
                if key.is_idle() {
                    self.remove(self.swept);
                }
            }
        }
    }

    fn remove(&mut self, place: usize) {
        let (key, _) = self.keys.swap_remove(place);
        self.places.remove(&key);
        if let Some((moved, _)) = self.keys.get(place) {
            let moved = self.places.get_mut(moved);
            *moved.expect("each key has its place") = place;
        }
        let room = 2 * ROOM.max(self.keys.len());
        if self.keys.capacity() > 2 * room {
            self.keys.shrink_to(room);
            self.places.shrink_to(room);
        }
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
