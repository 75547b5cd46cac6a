//! A value that tasks wait for.

use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// A value under a mutex, which tells those who wait for it of each change.
///
/// Its waiters are woken in the order in which they began to wait, so that a simulation replays. The mutex is held for no await.
#[derive(Debug, Default)]
pub(crate) struct Watched<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T> Watched<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            value: Mutex::new(value),
            changed: Notify::new(),
        }
    }

    /// The value, to be read.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        lock(&self.value)
    }

    /// Changes the value, and tells its waiters.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let result = change(&mut self.lock());
        self.changed.notify_waiters();
        result
    }

    /// The next change, for those that come after it is polled or enabled.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Waits for what `ready` finds in the value.
    pub(crate) async fn until<R>(&self, mut ready: impl FnMut(&T) -> Option<R>) -> R {
        loop {
            let mut changed = pin!(self.changed());
            changed.as_mut().enable();
            if let Some(found) = ready(&self.lock()) {
                return found;
            }
            changed.await;
        }
    }
}

/// Locks a mutex whose state changes in steps that do not panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
