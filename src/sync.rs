//! The mutex of the state machines.
//!
//! In unit tests, another thread may run at every lock and unlock, so that an
//! [exploration](crate::exploration) can try all orders. Elsewhere it is std's mutex.

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

#[cfg(test)]
use crate::exploration;

/// A mutex without poisoning: the state under it changes in steps that do not panic.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

pub(crate) struct MutexGuard<'a, T> {
    guard: std::sync::MutexGuard<'a, T>,
    // Dropped after the guard.
    #[cfg(test)]
    _unlocked: exploration::Junction,
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        #[cfg(test)]
        exploration::until(|| {
            !matches!(self.0.try_lock(), Err(std::sync::TryLockError::WouldBlock))
        });
        MutexGuard {
            guard: self.0.lock().unwrap_or_else(PoisonError::into_inner),
            #[cfg(test)]
            _unlocked: exploration::Junction,
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}
