//! The votes of the last refused attempt, by which wake-ups of its key are filtered.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::hold::RefusedVote;
use crate::lock::{Hold, LockKey, LockMode};
use crate::sync::{Mutex, MutexGuard};

/// Key and mode. A client passes the wake-ups of one attempt to the next attempt for the key, which has another id. So an
/// entry belongs to a key and a mode, and not to the hold that subscribed.
type Name = (LockKey, LockMode);

/// The votes of the last attempt, for each key and mode with a listener.
///
/// The mutex protects the map. An entry exists exactly as long as an [`EchoListener`] of its key and mode: a listener adds the
/// entry if there is none, and the last one removes it. The mutex of an entry is taken under that of the map.
#[derive(Clone, Default)]
pub(super) struct Echoes {
    heard: Arc<Mutex<HashMap<Name, Weak<Mutex<RefusedVote>>>>>,
}

/// One listener. Dropping the last one of a key and mode removes their entry.
pub(super) struct EchoListener {
    echoes: Echoes,
    name: Name,
    waiting: Arc<Mutex<RefusedVote>>,
}

impl Echoes {
    /// Adds a listener. `known` has the votes of the attempt that subscribes.
    pub(super) fn listen(&self, hold: &Hold, known: RefusedVote) -> EchoListener {
        let name = (hold.key.clone(), hold.mode);
        let mut heard = self.heard();
        let waiting = heard.get(&name).and_then(Weak::upgrade);
        let waiting = waiting.unwrap_or_else(|| Arc::new(Mutex::new(known)));
        heard.insert(name.clone(), Arc::downgrade(&waiting));
        EchoListener {
            echoes: self.clone(),
            name,
            waiting,
        }
    }

    /// Records the votes of an attempt, before its grants are given back.
    pub(super) fn note(&self, hold: &Hold, waiting: RefusedVote) {
        let heard = self.heard();
        if heard.is_empty() {
            return;
        }
        let name = (hold.key.clone(), hold.mode);
        if let Some(listener) = heard.get(&name).and_then(Weak::upgrade) {
            *listener.lock() = waiting;
        }
    }

    /// Whether there is no listener.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.heard().is_empty()
    }

    fn heard(&self) -> MutexGuard<'_, HashMap<Name, Weak<Mutex<RefusedVote>>>> {
        self.heard.lock()
    }
}

impl EchoListener {
    /// The votes of the last attempt.
    pub(super) fn waiting(&self) -> RefusedVote {
        *self.waiting.lock()
    }
}

impl Drop for EchoListener {
    fn drop(&mut self) {
        let mut heard = self.echoes.heard();
        if Arc::strong_count(&self.waiting) == 1 {
            heard.remove(&self.name);
        }
    }
}
