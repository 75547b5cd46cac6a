//! The questions of a client to a store.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::lock::{Hold, LockMode};

/// One attempt to get one hold.
///
/// The client makes the hold id before it sends the first byte, so that the attempt can be withdrawn by it, whatever its
/// outcome. The client repeats the same attempt while its caller waits.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Attempt {
    /// The requested hold.
    pub hold: Hold,
    /// How long the hold lives without renewal.
    pub lease: Duration,
    /// How long the caller waits; `None` if it does not ask again. Only attempts with patience are recorded as waiters.
    pub patience: Option<Duration>,
    /// Whether an attempt with patience for a `Reentrant` or a `Write` hold or a permit takes a place in line, and one for a
    /// `Read` hold is woken with the readers that a writer lets in. Without a place an attempt is granted when the key is free,
    /// and every release wakes it. A quorum asks its members without a place: lines with different fronts would block each other.
    pub in_line: bool,
    /// The fencing token of the grant, if one is requested. A `Read` hold gets none: readers share.
    pub fencing: Option<Fencing>,
}

impl Attempt {
    /// An attempt without patience and without a token. With patience it takes a place in line.
    pub fn new(hold: Hold, lease: Duration) -> Self {
        Self {
            hold,
            lease,
            patience: None,
            in_line: true,
            fencing: None,
        }
    }

    /// Sets [`patience`](Self::patience).
    #[must_use]
    pub fn patience(mut self, patience: impl Into<Option<Duration>>) -> Self {
        self.patience = patience.into();
        self
    }

    /// Sets [`in_line`](Self::in_line).
    #[must_use]
    pub fn in_line(mut self, in_line: bool) -> Self {
        self.in_line = in_line;
        self
    }

    /// Sets [`fencing`](Self::fencing).
    #[must_use]
    pub fn fencing(mut self, fencing: impl Into<Option<Fencing>>) -> Self {
        self.fencing = fencing.into();
        self
    }

    /// Whether the attempt takes a place in the line of waiters for an exclusive hold or a permit. `Fair` attempts have a queue
    /// of their own.
    pub(crate) fn has_place(&self) -> bool {
        self.is_woken_in_turn() && self.hold.mode.has_line()
    }

    /// Whether it is woken only when it may be granted, and not by every release: the first in line, and the readers that a
    /// writer lets in.
    pub(crate) fn is_woken_in_turn(&self) -> bool {
        self.in_line && self.patience.is_some() && self.hold.mode != LockMode::Fair
    }
}

/// The request for fencing tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Fencing {
    /// How long the key's token counter is kept after its last use; `None` keeps it for ever, as Redisson does. It is kept longer
    /// while an issued or reserved token is ahead of the store's clock, because tokens follow that clock if there is no counter.
    pub retention: Option<Duration>,
    /// How many more tokens, following the one granted, are reserved for hand-overs inside the process.
    pub reserve: u32,
}

impl Fencing {
    /// Tokens of a counter that is kept for `retention`, with `reserve` more after the one granted.
    pub fn new(retention: Option<Duration>, reserve: u32) -> Self {
        Self { retention, reserve }
    }
}

/// Which of several holds a caller wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// All of them, or none.
    All,
    /// The first free one, in order.
    Any,
}

/// A hold to renew, or to check.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Renewal {
    /// The hold.
    pub hold: Hold,
    /// How long it lives from now; `None` asks whether the store carries it and changes nothing.
    pub lease: Option<Duration>,
}

impl Renewal {
    /// Renews the lease of `hold`.
    pub fn new(hold: Hold, lease: Duration) -> Self {
        Self {
            hold,
            lease: Some(lease),
        }
    }

    /// Asks for `hold` and changes nothing.
    pub fn check(hold: Hold) -> Self {
        Self { hold, lease: None }
    }
}

/// The result of finished work under its key, such as the response to an idempotent request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// The work's result, opaque to the store.
    pub value: Bytes,
    /// How long the store keeps it.
    pub retention: Duration,
    /// Whose record it is, such as a tenant; empty if it belongs to no one in particular. A store with little room counts the bytes of each
    /// scope, and drops the oldest record of the largest one, so that no client pushes out the records of others.
    pub scope: Arc<str>,
}

impl Record {
    /// A record of `value`, kept for `retention`.
    pub fn new(value: impl Into<Bytes>, retention: Duration) -> Self {
        Self {
            value: value.into(),
            retention,
            scope: Arc::default(),
        }
    }

    /// Sets [`scope`](Self::scope).
    #[must_use]
    pub fn scope(mut self, scope: impl Into<Arc<str>>) -> Self {
        self.scope = scope.into();
        self
    }
}
