//! A process of a case.

use std::ops::Deref;

use super::KEY;
use tower_distributed_lock::lock::{LockMode, ResourceKey};
use tower_distributed_lock::{LockClient, LockRequest, Owner};

/// A client, which stands for a process, and the mode of the case.
#[derive(Debug, Clone)]
pub(super) struct Process {
    locks: LockClient,
    mode: LockMode,
}

impl Process {
    pub(super) fn new(locks: LockClient, mode: LockMode) -> Self {
        Self { locks, mode }
    }

    /// A request for [`KEY`] in the mode of the case.
    pub(super) fn request(&self) -> LockRequest {
        self.on(KEY)
    }

    /// The same with an owner: clones of the request are requests of one owner.
    pub(super) fn owned(&self) -> LockRequest {
        self.request().owner(&Owner::new())
    }

    /// The same for another key.
    pub(super) fn on(&self, key: impl Into<ResourceKey>) -> LockRequest {
        self.lock(key).mode(self.mode)
    }

    /// The same for several keys.
    pub(super) fn all(&self, keys: impl IntoIterator<Item: Into<ResourceKey>>) -> LockRequest {
        self.lock_all(keys).mode(self.mode)
    }

    /// The same for any of several keys.
    pub(super) fn any(&self, keys: impl IntoIterator<Item: Into<ResourceKey>>) -> LockRequest {
        self.lock_any(keys).mode(self.mode)
    }

    /// A request for [`KEY`] in a mode that the mode of the case excludes.
    pub(super) fn rival(&self) -> LockRequest {
        self.rival_on(KEY)
    }

    /// The same for another key.
    pub(super) fn rival_on(&self, key: impl Into<ResourceKey>) -> LockRequest {
        self.lock(key).mode(rival(self.mode))
    }
}

impl Deref for Process {
    type Target = LockClient;

    fn deref(&self) -> &LockClient {
        &self.locks
    }
}

/// A mode that a hold in `mode` excludes.
pub(super) fn rival(mode: LockMode) -> LockMode {
    match mode {
        LockMode::Read => LockMode::Write,
        LockMode::Write => LockMode::Read,
        other => other,
    }
}
