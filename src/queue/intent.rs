//! What a request with the turn asks for.

use crate::lock::{HoldId, LockMode, Owner};

/// A question to the store, before it is sent.
#[derive(Debug, Clone)]
pub(super) struct Intent {
    pub(super) mode: LockMode,
    pub(super) owner: Option<Owner>,
    /// The owner's write hold under which it reads. It asks with that id.
    pub(super) nested: Option<HoldId>,
}

impl Intent {
    /// That of a request which had its place in the queue of its side.
    pub(super) fn of_side(mode: LockMode) -> Self {
        Self {
            mode,
            owner: None,
            nested: None,
        }
    }
}
