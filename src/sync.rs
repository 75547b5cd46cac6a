//! The mutex of the state machines, and calls of code outside this crate.
//!
//! In unit tests, another thread may run at every lock and unlock, so that an
//! [exploration](crate::exploration) can try all orders. Elsewhere it is std's mutex.

use std::any::Any;
use std::future::poll_fn;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Wake, Waker};

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
        // A subscriber may panic at each event.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let panic = panic_text(&*panic);
            tracing::error!(panic, "{what} panicked");
        }));
    }
}

/// Drives `work` with a waker whose panic is logged. Tokio wakes those who wait for one thing together, and a panic of one waker would take
/// the wake-ups of the others with it.
pub(crate) async fn caught<F: Future>(work: F) -> F::Output {
    let mut work = pin!(work);
    // The caller's, and the one around it.
    let mut latest: Option<(Waker, Waker)> = None;
    let polled = poll_fn(|cx| {
        let known = latest.take();
        let known = known.filter(|(callers, _)| callers.will_wake(cx.waker()));
        let (_, waker) = latest.insert(known.unwrap_or_else(|| {
            let callers = cx.waker().clone();
            let waker = Arc::new(Caught(callers.clone())).into();
            (callers, waker)
        }));
        work.as_mut().poll(&mut Context::from_waker(waker))
    });
    polled.await
}

struct Caught(Waker);

impl Wake for Caught {
    fn wake(self: Arc<Self>) {
        call_outside("a waker", || self.0.wake_by_ref());
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
