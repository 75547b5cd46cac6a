//! Counts votes.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::majority::Votes;
use super::members::Members;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::Outcome;

/// The votes on an attempt.
pub(super) struct VoteCount {
    majority: usize,
    pub(super) granted: Members,
    pub(super) refused: Members,
    /// The `retry_after` hints of the stores that refused, the shortest first.
    hints: Vec<Duration>,
    /// Stores that were asked and have not answered.
    pub(super) open: Members,
}

impl VoteCount {
    pub(super) fn of(majority: usize, asked: Members, votes: &Votes<Outcome>) -> Self {
        let mut count = Self {
            majority,
            granted: Members::default(),
            refused: Members::default(),
            hints: Vec::new(),
            open: Members::default(),
        };
        for store in asked.iter() {
            match &votes[store] {
                None => count.open.insert(store),
                Some(Ok(Outcome::Granted { .. })) => count.granted.insert(store),
                Some(Ok(Outcome::Refused { retry_after })) => {
                    count.refused.insert(store);
                    count.hints.push(*retry_after);
                }
                Some(Err(_)) => {}
            }
        }
        count.hints.sort_unstable();
        count
    }

    pub(super) fn is_granted(&self) -> bool {
        self.granted.len() >= self.majority
    }

    /// Whether a majority answered, so that the attempt is refused and has not failed.
    pub(super) fn is_refused(&self) -> bool {
        !self.is_granted() && self.granted.len() + self.refused.len() >= self.majority
    }

    /// Whether the outstanding votes cannot change the result.
    pub(super) fn is_decided(&self) -> bool {
        let (granted, open) = (self.granted.len(), self.open.len());
        let can_be_granted = granted + open >= self.majority;
        let can_be_refused = granted + open + self.refused.len() >= self.majority;
        self.is_granted() || !can_be_granted && (self.is_refused() || !can_be_refused)
    }

    /// The time after which enough leases have ended for a majority to be free.
    pub(super) fn retry_after(&self) -> Duration {
        let missing = self.majority - self.granted.len();
        let hint = self.hints.get(missing - 1).or(self.hints.last());
        hint.copied().unwrap_or_default()
    }
}

/// How many stores have answered without an error.
pub(super) fn answered<T>(votes: &Votes<T>) -> usize {
    votes.iter().flatten().filter(|vote| vote.is_ok()).count()
}

/// Why there was no majority: `dirty` says whether any store may have been changed all the same.
pub(super) fn no_majority<T>(majority: usize, votes: &Votes<T>, dirty: bool) -> StoreError {
    let errors = || {
        votes
            .iter()
            .flatten()
            .filter_map(|vote| vote.as_ref().err())
    };
    let count = |kind| errors().filter(|error| error.kind() == kind).count();
    let unknown = votes.len() - votes.iter().flatten().count();
    let kind = if count(StoreErrorKind::Conflict) >= majority {
        StoreErrorKind::Conflict
    } else if count(StoreErrorKind::Refused) >= majority {
        StoreErrorKind::Refused
    } else if dirty || unknown > 0 || count(StoreErrorKind::Unanswered) > 0 {
        StoreErrorKind::Unanswered
    } else if count(StoreErrorKind::Transient) + count(StoreErrorKind::Unacknowledged) > 0 {
        StoreErrorKind::Transient
    } else {
        StoreErrorKind::Unreachable
    };
    StoreError::new(
        kind,
        NoMajority {
            of: votes.len(),
            answered: answered(votes),
            silent: unknown,
            cause: errors().next().cloned(),
        },
    )
}

#[derive(Debug)]
struct NoMajority {
    of: usize,
    answered: usize,
    silent: usize,
    cause: Option<StoreError>,
}

impl fmt::Display for NoMajority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            of,
            answered,
            silent,
            ..
        } = self;
        let failed = of - answered - silent;
        write!(
            f,
            "no majority: of {of} stores {answered} answered, {failed} failed and {silent} did not answer in time"
        )
    }
}

impl Error for NoMajority {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_ref().map(|cause| cause as _)
    }
}
