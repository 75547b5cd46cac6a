//! What workers say of what they do, one line each.

use serde::{Deserialize, Serialize};

use tower_distributed_lock::LockMode;

/// Something that a worker did or saw. Times are those of [`now`](crate::clock::now).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Event {
    /// It works under a lock from now on.
    Began(Began),
    /// It no longer does.
    Ended(Ended),
    /// A request ended without a lock.
    Missed(Missed),
    /// A promise that a worker sees broken by itself.
    Broken { promise: String, text: String },
    /// A worker has left everything in good order.
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

/// What became of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Ending {
    Confirmed,
    Lost,
    /// The store did not say.
    Unknown,
    /// Nobody asked.
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
    /// Its own outer lock was lost, or it had asked to upgrade.
    Other,
}

/// [`LockMode`], to be written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Mode {
    Reentrant,
    Fair,
    Read,
    Write,
}

impl Mode {
    pub(crate) const ALL: [Self; 4] = [Self::Reentrant, Self::Fair, Self::Read, Self::Write];

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
        }
    }
}
