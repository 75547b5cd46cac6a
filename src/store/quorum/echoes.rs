//! What the last refused attempt met, for the wake-ups of its key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::entry::Waiting;
use crate::lock::{Hold, LockKey, LockMode};

/// What attempts of one key and mode wait for. A client passes the wake-ups of one attempt on to the next one of the key,
/// which bears another id; so this belongs to the key and the mode, not to the hold that subscribed.
type Name = (LockKey, LockMode);

/// For each key and mode that is listened to, what its last attempt met.
///
/// The mutex protects the map. An entry is there exactly as long as a [`Listener`] of its key and mode: a listener adds the
/// entry if there is none, and the last one removes it. The mutex of an entry is taken under that of the map.
#[derive(Clone, Default)]
pub(super) struct Echoes {
    heard: Arc<Mutex<HashMap<Name, Weak<Mutex<Waiting>>>>>,
}

/// A place among those who listen.
pub(super) struct Listener {
    echoes: Echoes,
    name: Name,
    waiting: Arc<Mutex<Waiting>>,
}

impl Echoes {
    /// Begins to listen. `known` is what the subscribing attempt has met.
    pub(super) fn listen(&self, hold: &Hold, known: Waiting) -> Listener {
        let name = (hold.key.clone(), hold.mode);
        let mut heard = self.heard();
        let waiting = heard.get(&name).and_then(Weak::upgrade);
        let waiting = waiting.unwrap_or_else(|| Arc::new(Mutex::new(known)));
        heard.insert(name.clone(), Arc::downgrade(&waiting));
        Listener {
            echoes: self.clone(),
            name,
            waiting,
        }
    }

    /// Notes what an attempt has met, before it gives back what it was granted.
    pub(super) fn note(&self, hold: &Hold, waiting: Waiting) {
        let heard = self.heard();
        if heard.is_empty() {
            return;
        }
        let name = (hold.key.clone(), hold.mode);
        if let Some(listener) = heard.get(&name).and_then(Weak::upgrade) {
            *lock(&listener) = waiting;
        }
    }

    /// Whether none listens.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.heard().is_empty()
    }

    fn heard(&self) -> MutexGuard<'_, HashMap<Name, Weak<Mutex<Waiting>>>> {
        lock(&self.heard)
    }
}

impl Listener {
    /// What the last attempt met.
    pub(super) fn waiting(&self) -> Waiting {
        *lock(&self.waiting)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut heard = self.echoes.heard();
        if Arc::strong_count(&self.waiting) == 1 {
            heard.remove(&self.name);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
