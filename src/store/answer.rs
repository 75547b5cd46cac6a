//! The answers of a store.

use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use crate::lock::FencingToken;

/// The answer to an [`Attempt`](super::Attempt). There is no third one, so it can be matched exhaustively.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The caller has the hold, for one lease from now.
    Granted {
        /// The first of the tokens that [`Attempt::fencing`](super::Attempt::fencing) requests.
        token: Option<FencingToken>,
    },
    /// The attempt is refused.
    Refused {
        /// The time after which another attempt may succeed without a wake-up: the rest of the present holder's lease, or
        /// of another obstacle.
        retry_after: Duration,
    },
}

/// The answer to several attempts. As for one, there is no third one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SeveralOutcome {
    /// The caller has these holds: all of them, in order, for [`Want::All`](super::Want::All); one for
    /// [`Want::Any`](super::Want::Any).
    Granted(Vec<Grant>),
    /// The caller has none.
    Refused {
        /// The first attempt of [`Want::All`](super::Want::All) that was refused, if the store names it.
        index: Option<usize>,
        /// The time after which another attempt may succeed without a wake-up.
        retry_after: Duration,
    },
}

/// A granted attempt of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The index of the attempt in the question.
    pub index: usize,
    /// The first of the tokens that [`Attempt::fencing`](super::Attempt::fencing) requests.
    pub token: Option<FencingToken>,
}

impl Grant {
    /// The grant of the attempt at `index`.
    pub fn new(index: usize, token: Option<FencingToken>) -> Self {
        Self { index, token }
    }
}

/// The answer about one attempt, or about several.
#[derive(Debug)]
pub(crate) enum Reply {
    /// The granted attempts, with their tokens.
    Granted(SmallVec<[Grant; 1]>),
    Refused {
        /// The refused attempt of [`Want::All`](super::Want::All).
        index: usize,
        retry_after: Duration,
    },
}

impl From<Outcome> for Reply {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Granted { token } => Self::Granted(smallvec![Grant { index: 0, token }]),
            Outcome::Refused { retry_after } => Self::Refused {
                index: 0,
                retry_after,
            },
        }
    }
}

impl From<SeveralOutcome> for Reply {
    fn from(outcome: SeveralOutcome) -> Self {
        match outcome {
            SeveralOutcome::Granted(grants) => Self::Granted(grants.into()),
            SeveralOutcome::Refused { index, retry_after } => Self::Refused {
                index: index.unwrap_or_default(),
                retry_after,
            },
        }
    }
}

/// Whether the store carries a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldStatus {
    /// The store carries the hold. After a release: it carried the hold until now.
    Held,
    /// The store does not carry the hold: it expired, was removed, or never existed.
    Gone,
    /// The store answered, but cannot decide about this hold: in a quorum, too few of the stores that carry the hold
    /// answered. The client does not change the hold's deadline, and asks again.
    Unknown,
}

/// The answer to a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Released {
    /// Whether the store carried the hold until now.
    pub status: HoldStatus,
    /// How many [`Wakeups`](super::Wakeups) the end of a `Reentrant` or `Write` hold has woken. It is an estimate, which
    /// may count several waiters of a process as one, and 0 if the store does not know. A client that wants the lock
    /// again yields if it is not 0.
    pub notified: usize,
    /// Whether the store keeps its waiters [in line](super::Attempt::in_line), and lets waiters outside the line go first
    /// after this release. A client that wants the lock again need not pause: the store refuses it until its place comes.
    pub in_line: bool,
}

impl Released {
    /// An answer with the hold's status, and the number of wake-ups.
    pub fn new(status: HoldStatus, notified: usize) -> Self {
        Self {
            status,
            notified,
            in_line: false,
        }
    }

    /// Sets [`in_line`](Self::in_line).
    #[must_use]
    pub fn in_line(self, in_line: bool) -> Self {
        Self { in_line, ..self }
    }
}

impl From<HoldStatus> for Released {
    /// The answer of a store that does not know the number of listeners.
    fn from(status: HoldStatus) -> Self {
        Self::new(status, 0)
    }
}
