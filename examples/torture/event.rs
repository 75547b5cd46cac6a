//! The events that workers report, one line each.

use serde::{Deserialize, Serialize};

use tower_distributed_lock::LockMode;

/// An event of a worker. Times are those of [`now`](crate::clock::now).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Event {
    /// A section under a lock begins.
    Began(Began),
    /// The section ends.
    Ended(Ended),
    /// A request ended without a lock.
    Missed(Missed),
    /// A broken promise that the worker itself has found.
    Broken { promise: String, text: String },
    /// The worker has ended, and has left nothing.
    Done,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Began {
    pub(crate) id: u64,
    pub(crate) key: String,
    pub(crate) mode: Mode,
    pub(crate) owner: u64,
    pub(crate) asked: u64,
    pub(crate) from: u64,
    pub(crate) token: Option<u64>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) id: u64,
    pub(crate) to: u64,
    pub(crate) held: bool,
    pub(crate) ending: Ending,
    /// When the release had been answered.
    pub(crate) answered: u64,
}

/// How a lock ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Ending {
    Confirmed,
    Lost,
    /// The store did not answer.
    Unknown,
    /// The guard was dropped.
    Dropped,
    /// Its process was killed.
    Killed,
}

/// Why a request got no lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Missed {
    Busy,
    Unavailable,
    Cancelled,
    /// The owner's outer lock was lost, or the request was an upgrade.
    Other,
}

/// [`LockMode`], for serialization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Mode {
    Reentrant,
    Fair,
    Read,
    Write,
    /// The only permit of a key.
    Permit,
}

impl Mode {
    pub(crate) const ALL: [Self; 5] = [
        Self::Reentrant,
        Self::Fair,
        Self::Read,
        Self::Write,
        Self::Permit,
    ];

    pub(crate) fn excludes(self) -> bool {
        self != Self::Read
    }
}

impl From<LockMode> for Mode {
    fn from(mode: LockMode) -> Self {
        match mode {
            LockMode::Reentrant => Self::Reentrant,
            LockMode::Fair => Self::Fair,
            LockMode::Read => Self::Read,
            LockMode::Write => Self::Write,
            LockMode::Permit(_) => Self::Permit,
        }
    }
}

impl From<Mode> for LockMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Reentrant => Self::Reentrant,
            Mode::Fair => Self::Fair,
            Mode::Read => Self::Read,
            Mode::Write => Self::Write,
            Mode::Permit => Self::permits(1),
        }
    }
}
