//! What a client asks of a store.

use std::time::Duration;

use bytes::Bytes;

use crate::lock::{Hold, LockMode};

/// One try to get one hold.
///
/// The client makes the hold id before it sends the first byte, so that the attempt can be undone by name whatever its
/// outcome. The client makes the same attempt again while its caller waits.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Attempt {
    /// The hold that is asked for.
    pub hold: Hold,
    /// How long it shall live without renewal.
    pub lease: Duration,
    /// How long the caller is willing to wait; `None` if it will not ask again. Only attempts with patience are
    /// remembered as waiters.
    pub patience: Option<Duration>,
    /// Whether an attempt with patience for a `Reentrant` or a `Write` hold or a permit takes a place in line, and one for a `Read` hold
    /// is woken with the readers that a writer lets in. Without a place an attempt is granted whenever the key is free, and
    /// every release wakes it. A quorum asks its members without: several lines with different fronts would block each
    /// other.
    pub in_line: bool,
    /// Whether the grant shall carry a fencing token. A `Read` hold gets none: readers share.
    pub fencing: Option<Fencing>,
}

impl Attempt {
    /// An attempt that is made once and asks for no token. With patience it stands in line.
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
    pub fn patience(self, patience: impl Into<Option<Duration>>) -> Self {
        Self {
            patience: patience.into(),
            ..self
        }
    }

    /// Sets [`in_line`](Self::in_line).
    #[must_use]
    pub fn in_line(self, in_line: bool) -> Self {
        Self { in_line, ..self }
    }

    /// Sets [`fencing`](Self::fencing).
    #[must_use]
    pub fn fencing(self, fencing: impl Into<Option<Fencing>>) -> Self {
        Self {
            fencing: fencing.into(),
            ..self
        }
    }

    /// Whether the attempt takes a place in the line of those that wait for an exclusive hold or a permit. `Fair` attempts have a queue
    /// of their own.
    pub(crate) fn stands_in_line(&self) -> bool {
        let mode = self.hold.mode;
        self.is_called() && (mode.is_exclusive() || matches!(mode, LockMode::Permit(_)))
    }

    /// Whether it is woken when it may be granted, and not by every release: the first in line, and the readers that a
    /// writer lets in.
    pub(crate) fn is_called(&self) -> bool {
        self.in_line && self.patience.is_some() && self.hold.mode != LockMode::Fair
    }
}

/// What a caller wants of its fencing tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Fencing {
    /// How long the key's token counter is kept after its last use; `None`, which Redisson does, keeps it for ever. It is
    /// kept for longer while a token that was issued or reserved is ahead of the store's clock: tokens follow that clock
    /// where there is no counter.
    pub retention: Option<Duration>,
    /// How many more tokens, following the one granted, are reserved for passing the hold on inside the process.
    pub reserve: u32,
}

impl Fencing {
    /// Tokens of a counter that is kept for `retention`, with `reserve` more after the one granted.
    pub fn new(retention: Option<Duration>, reserve: u32) -> Self {
        Self { retention, reserve }
    }
}

/// How many of several holds a caller wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// All of them, or none.
    All,
    /// The first in order that is free.
    Any,
}

/// A hold that is to be renewed, or only looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Renewal {
    /// The hold.
    pub hold: Hold,
    /// How long it shall live from now; `None` asks whether the store carries it and changes nothing.
    pub lease: Option<Duration>,
}

impl Renewal {
    /// Begins the lease of `hold` anew.
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

/// A hold that is to end.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Release {
    /// The hold.
    pub hold: Hold,
    /// What is remembered under its key, in the same step, if the store carried the hold until now.
    pub record: Option<Record>,
}

impl Release {
    /// Ends `hold` and leaves nothing behind.
    pub fn new(hold: Hold) -> Self {
        Self { hold, record: None }
    }

    /// Leaves `record` behind.
    #[must_use]
    pub fn record(self, record: impl Into<Option<Record>>) -> Self {
        Self {
            record: record.into(),
            ..self
        }
    }
}

/// What a finished piece of work leaves under its key, such as the response to an idempotent request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// The work's result, opaque to the store.
    pub value: Bytes,
    /// How long it is remembered.
    pub retention: Duration,
}

impl Record {
    /// Remembers `value` for `retention`.
    pub fn new(value: impl Into<Bytes>, retention: Duration) -> Self {
        Self {
            value: value.into(),
            retention,
        }
    }
}
