//! The kinds of locks, with the names of both sides.

use std::fmt::{self, Display};

use tower_distributed_lock::{LockClient, LockMode, LockRequest};

/// A kind of lock: a class of Redisson's, a request of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Reentrant,
    Fair,
    Read,
    Write,
    /// An exclusive mode of ours with a token; Redisson has a class for it since 3.19.
    Fenced,
}

impl Kind {
    pub(super) const ALL: [Self; 5] = [
        Self::Reentrant,
        Self::Fair,
        Self::Read,
        Self::Write,
        Self::Fenced,
    ];

    /// The kind that a hold of this kind excludes.
    pub(super) fn rival(self) -> Self {
        match self {
            Self::Read => Self::Write,
            _ => self,
        }
    }

    /// Our mode for it.
    pub(super) fn mode(self) -> LockMode {
        match self {
            Self::Reentrant | Self::Fenced => LockMode::Reentrant,
            Self::Fair => LockMode::Fair,
            Self::Read => LockMode::Read,
            Self::Write => LockMode::Write,
        }
    }

    /// Asks `client` for a lock of this kind.
    pub(super) fn request(self, client: &LockClient, name: &str) -> LockRequest {
        let request = client.lock(name).mode(self.mode());
        match self {
            Self::Fenced => request.fenced(),
            _ => request,
        }
    }

    /// The kind with this name in the driver.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.to_string() == name)
    }
}

impl Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reentrant => "reentrant",
            Self::Fair => "fair",
            Self::Read => "read",
            Self::Write => "write",
            Self::Fenced => "fenced",
        })
    }
}
