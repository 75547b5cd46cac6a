//! The mutex of the state machines.
//!
//! In unit tests, another thread may run at every lock and unlock, so that an
//! [exploration](crate::exploration) can try all orders. Elsewhere it is std's mutex.

use std::any::Any;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;

#[cfg(test)]
use crate::exploration;

#[cfg(test)]
thread_local! {
    /// How often this thread has locked a mutex.
    pub(crate) static LOCKED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Calls code outside this crate, such as a waker. If it panics, that is logged, and the caller goes on.
pub(crate) fn call_outside(what: &'static str, call: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
        let panic = panic_text(&*panic);
        tracing::error!(panic, "{what} panicked");
    }
}

/// What a panic says.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("no text")
}

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

    /// Without a lock, because no other thread can reach it.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        #[cfg(test)]
        LOCKED.set(LOCKED.get() + 1);
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
