//! Decisions that a program makes by a closure.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use http::request::Parts;

/// A closure of the program; clones share it.
pub(crate) struct Closure<F: ?Sized>(pub(crate) Arc<F>);

/// Decides something about a request by its head.
pub(crate) type RequestFn<T> = Closure<dyn Fn(&Parts) -> T + Send + Sync>;

impl<F: ?Sized> Deref for Closure<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.0
    }
}

impl<F: ?Sized> Clone for Closure<F> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<F: ?Sized> fmt::Debug for Closure<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a closure")
    }
}
