//! Decisions about requests that a program makes by a closure.

use std::fmt;
use std::sync::Arc;

use http::request::Parts;

type Decide<T> = dyn Fn(&Parts) -> T + Send + Sync;

/// A closure over the head of a request; clones share it.
pub(crate) struct OfRequest<T>(Option<Arc<Decide<T>>>);

impl<T> OfRequest<T> {
    pub(crate) fn new(decide: impl Fn(&Parts) -> T + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(decide)))
    }

    /// `None` if there is no closure.
    pub(crate) fn of(&self, parts: &Parts) -> Option<T> {
        self.0.as_ref().map(|decide| decide(parts))
    }
}

impl<T> Clone for OfRequest<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for OfRequest<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> fmt::Debug for OfRequest<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "a closure"
        } else {
            "none"
        })
    }
}
