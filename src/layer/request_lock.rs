//! What the layers around a request tell its handler.

use http::Extensions;

use crate::guard::LockHandle;
use crate::lock::Owner;

/// The lock and the owner of a request. In its extensions.
#[derive(Debug, Clone)]
pub(crate) struct RequestLock {
    pub(crate) owner: Owner,
    /// The lock of the innermost layer that holds one.
    pub(crate) lock: Option<LockHandle>,
    /// A layer let the request pass without a lock.
    pub(crate) passed: bool,
}

impl RequestLock {
    pub(crate) fn of(extensions: &mut Extensions) -> &mut Self {
        Self::or_of(extensions, Owner::new)
    }

    /// The one that is there, or a new one of `owner`.
    pub(super) fn or_of(extensions: &mut Extensions, owner: impl FnOnce() -> Owner) -> &mut Self {
        extensions.get_or_insert_with(|| Self {
            owner: owner(),
            lock: None,
            passed: false,
        })
    }
}

impl LockHandle {
    /// The lock that the innermost layer holds around the request with these extensions. With axum, extract a `LockHandle` instead.
    pub fn of(extensions: &Extensions) -> Option<&Self> {
        extensions.get::<RequestLock>()?.lock.as_ref()
    }
}

impl Owner {
    /// The owner of the request with these extensions. With axum, extract an `Owner` instead.
    pub fn of(extensions: &mut Extensions) -> &Self {
        &RequestLock::of(extensions).owner
    }
}
