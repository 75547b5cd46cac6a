//! Counts votes.

use std::time::Duration;

use super::majority::Votes;
use super::members::Members;
use crate::store::Outcome;

/// The votes on an attempt.
#[derive(Default)]
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
            ..Self::default()
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
