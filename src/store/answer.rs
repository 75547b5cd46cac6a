//! What a store answers.

use std::time::Duration;

use crate::lock::FencingToken;

/// What the store answers to an [`Attempt`](super::Attempt).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The hold is the caller's, for one lease from now.
    Granted {
        /// The first of the tokens asked for by [`Attempt::fencing`](super::Attempt::fencing).
        token: Option<FencingToken>,
    },
    /// Others go first.
    Refused {
        /// When asking again may succeed without a wake-up: the rest of the present holder's lease, or of whatever else
        /// stands in the way.
        retry_after: Duration,
    },
}

/// What the store answers to several attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SeveralOutcome {
    /// These holds are the caller's: every one, in order, of [`Want::All`](super::Want::All); one of
    /// [`Want::Any`](super::Want::Any).
    Granted(Vec<Grant>),
    /// None is.
    Refused {
        /// The first attempt of [`Want::All`](super::Want::All) that was refused, if the store says so.
        index: Option<usize>,
        /// When asking again may succeed without a wake-up.
        retry_after: Duration,
    },
}

/// One of several attempts that was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The place of the attempt among those asked.
    pub index: usize,
    /// The first of the tokens asked for by [`Attempt::fencing`](super::Attempt::fencing).
    pub token: Option<FencingToken>,
}

/// Whether the store carries a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldStatus {
    /// The store carries the hold. After a release: it carried the hold until now.
    Held,
    /// The store does not carry the hold: the hold lapsed, was removed, or never was.
    Gone,
    /// The store answered, but cannot say it of this hold: of the stores of a quorum that carry the hold, too few
    /// answered. The client keeps the hold's deadline as it is and asks again.
    Unknown,
}

/// What the store answers to a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Released {
    /// Whether the store carried the hold until now.
    pub status: HoldStatus,
    /// How many [`Wakeups`](super::Wakeups) the end of a `Reentrant` or `Write` hold has woken: an estimate, which may
    /// count a process of many as one, and 0 where the store cannot tell. A client that wants the lock again lets others
    /// go first if there are any.
    pub notified: usize,
    /// Whether the store keeps its waiters [in line](super::Attempt::in_line), and lets those outside the line go first
    /// after this release. A client that wants the lock again asks at once then, and is refused while it is not its turn.
    pub in_line: bool,
}

impl Released {
    /// The hold's status, and how many wake-ups its end has sent.
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
    /// A release of a store that cannot tell how many listen.
    fn from(status: HoldStatus) -> Self {
        Self::new(status, 0)
    }
}
