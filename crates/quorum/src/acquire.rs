//! Asking for a hold.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tower_distributed_lock::error::{StoreError, StoreErrorKind};
use tower_distributed_lock::store::{Attempt, Feature, LockStore, Outcome};

use crate::QuorumStore;
use crate::ballot::{Vote, Votes, answered, majority, no_majority};
use crate::ledger::{Entry, IS_NEW, Left, is_unanswered};

/// How long the other stores may take at least when a majority has granted.
const GRACE: Duration = Duration::from_millis(5);

impl<S: LockStore> QuorumStore<S> {
    pub(crate) async fn acquire_majority(&self, attempt: Attempt) -> Vote<Outcome> {
        self.require(Feature::Mode(attempt.hold.mode))?;
        if attempt.fencing.is_some() {
            self.require(Feature::Fencing)?;
        }
        let started = Instant::now();
        let until = self.deadline(Some(attempt.lease));
        let entry = self.entry(&attempt.hold, IS_NEW, attempt.lease);
        entry.known().wanted = None;
        let mut ballot =
            self.ballot(|quorum, at| quorum.acquire_in(at, attempt.clone(), entry.clone()));
        ballot.wait(until, is_decided).await;
        // Only what has granted before the answer counts when the hold is confirmed: the others get the same time again.
        let grace = Instant::now() + GRACE.max(started.elapsed());
        let is_refused = |votes: &Votes<_>| grants(votes) < majority(votes.len());
        ballot.wait(grace.min(until), is_refused).await;

        // Whether enough of the lease is left, the client checks, as it does for every store.
        let pace = self.pace(&attempt.hold.key);
        let outcome = match outcome(&ballot.votes) {
            Some(Outcome::Refused { retry_after }) if grants(&ballot.votes) > 0 => {
                let retry_after = pace.pause(started.elapsed()).min(retry_after);
                Ok(Outcome::Refused { retry_after })
            }
            Some(outcome) => Ok(outcome),
            None => Err(no_majority(&ballot.votes, true)),
        };
        // What the outcome has no use for is taken back. A grant that was needed stays, and so does a waiter.
        let wanted = match outcome {
            Ok(Outcome::Granted { .. }) => Left::Hold,
            Ok(Outcome::Refused { .. }) => Left::Waiter,
            Err(_) => Left::Nothing,
        };
        if wanted == Left::Hold {
            pace.granted();
        }
        let has_granted = |at: usize| ballot.votes[at].as_ref().is_some_and(is_grant);
        let counts = |at| wanted == Left::Hold && has_granted(at);
        entry.known().decide(wanted, counts);
        self.settle(ballot, &attempt, &entry);
        outcome
    }

    async fn acquire_in(self, at: usize, attempt: Attempt, entry: Arc<Entry>) -> Vote<Outcome> {
        let mut left = entry.left[at].lock().await;
        if *left == Left::Doubtful {
            let why = "an earlier question about this hold went unanswered";
            return Err(StoreError::new(StoreErrorKind::Unanswered, why));
        }
        let before = mem::replace(&mut *left, Left::Doubtful);
        let answer = self.shared.stores[at].acquire(&attempt).await;
        *left = match &answer {
            Ok(Outcome::Granted { .. }) => Left::Hold,
            Ok(Outcome::Refused { .. }) if attempt.patience.is_some() => Left::Waiter,
            Err(error) if is_unanswered(error) => Left::Doubtful,
            _ => before,
        };
        answer
    }
}

fn is_grant(vote: &Vote<Outcome>) -> bool {
    matches!(vote, Ok(Outcome::Granted { .. }))
}

fn grants(votes: &Votes<Outcome>) -> usize {
    votes.iter().flatten().filter(|vote| is_grant(vote)).count()
}

/// Whether the votes that are missing change nothing.
fn is_decided(votes: &Votes<Outcome>) -> bool {
    let (majority, granted) = (majority(votes.len()), grants(votes));
    let open = votes.iter().filter(|vote| vote.is_none()).count();
    granted >= majority || granted + open < majority && answered(votes) >= majority
}

/// The answer of a majority.
fn outcome(votes: &Votes<Outcome>) -> Option<Outcome> {
    let (majority, granted) = (majority(votes.len()), grants(votes));
    if granted >= majority {
        return Some(Outcome::Granted { token: None });
    }
    let hint = |outcome: &Outcome| match outcome {
        Outcome::Refused { retry_after } => Some(*retry_after),
        Outcome::Granted { .. } => None,
    };
    let mut hints: Vec<_> = votes.iter().flatten().flatten().filter_map(hint).collect();
    hints.sort_unstable();
    // It may be free when enough leases have ended.
    let enough = hints.get(majority - granted - 1).or(hints.last());
    let retry_after = enough.copied().unwrap_or_default();
    (answered(votes) >= majority).then_some(Outcome::Refused { retry_after })
}
