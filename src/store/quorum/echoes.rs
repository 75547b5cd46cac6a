//! The votes of the last refused attempt, by which wake-ups of its key are filtered.

use std::collections::HashMap;
use std::sync::Arc;

use super::hold::RefusedVote;
use crate::lock::{Hold, LockKey, LockMode};
use crate::sync::Mutex;

/// Key and mode. A client passes the wake-ups of one attempt to the next attempt for the key, which has another id. So an
/// entry belongs to a key and a mode, and not to the hold that subscribed.
type Name = (LockKey, LockMode);

/// The votes of the last attempt, for each key and mode with a listener.
///
/// The mutex protects the map. Between calls, an entry has as many `listeners` as there are [`EchoListener`]s of its key and
/// mode, and at least one.
#[derive(Clone, Default)]
pub(super) struct Echoes(Arc<Mutex<HashMap<Name, Echo>>>);

struct Echo {
    waiting: RefusedVote,
    listeners: usize,
}

/// One listener. Dropping the last one of a key and mode removes their entry.
pub(super) struct EchoListener {
    echoes: Echoes,
    name: Name,
}

impl Echoes {
    /// Adds a listener. `known` has the votes of the attempt that subscribes.
    pub(super) fn listen(&self, hold: &Hold, known: RefusedVote) -> EchoListener {
        let name = (hold.key.clone(), hold.mode);
        let mut echoes = self.0.lock();
        let echo = echoes.entry(name.clone()).or_insert(Echo {
            waiting: known,
            listeners: 0,
        });
        echo.listeners += 1;
        let echoes = self.clone();
        EchoListener { echoes, name }
    }

    /// Records the votes of an attempt, before its grants are given back.
    pub(super) fn note(&self, hold: &Hold, waiting: RefusedVote) {
        let mut echoes = self.0.lock();
        if echoes.is_empty() {
            return;
        }
        if let Some(echo) = echoes.get_mut(&(hold.key.clone(), hold.mode)) {
            echo.waiting = waiting;
        }
    }

    /// Whether there is no listener.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

impl EchoListener {
    /// The votes of the last attempt.
    pub(super) fn waiting(&self) -> RefusedVote {
        let echoes = self.echoes.0.lock();
        echoes
            .get(&self.name)
            .map_or_else(RefusedVote::default, |echo| echo.waiting)
    }
}

impl Drop for EchoListener {
    fn drop(&mut self) {
        let mut echoes = self.echoes.0.lock();
        if let Some(echo) = echoes.get_mut(&self.name) {
            echo.listeners -= 1;
            if echo.listeners == 0 {
                echoes.remove(&self.name);
            }
        }
    }
}
