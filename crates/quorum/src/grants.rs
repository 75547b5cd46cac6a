//! Asking one store for a hold, and what the votes of all grant.

use std::mem;
use std::sync::Arc;

use tower_distributed_lock::error::{StoreError, StoreErrorKind};
use tower_distributed_lock::store::{Attempt, LockStore, Outcome};

use crate::QuorumStore;
use crate::ballot::{Vote, Votes, majority, most_answered};
use crate::ledger::{Entry, Left, is_unanswered};

impl<S: LockStore> QuorumStore<S> {
    /// `is_held`: the hold was granted before. If it was not, a grant that may still be in the store is withdrawn before the store is
    /// asked again, because its lease may be another one.
    pub(crate) async fn acquire_in(
        self,
        at: usize,
        attempt: Attempt,
        entry: Arc<Entry>,
        is_held: bool,
    ) -> Vote<Outcome> {
        let mut left = entry.left[at].lock().await;
        if *left == Left::Doubtful || *left == Left::Hold && !is_held {
            let why = "an earlier question about this hold is not withdrawn yet";
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

pub(crate) fn is_grant(vote: &Vote<Outcome>) -> bool {
    matches!(vote, Ok(Outcome::Granted { .. }))
}

pub(crate) fn grants(votes: &Votes<Outcome>) -> usize {
    votes.iter().flatten().filter(|vote| is_grant(vote)).count()
}

/// The answer of a majority, if the votes that are still `open` do not change it.
pub(crate) fn outcome(votes: &Votes<Outcome>, open: usize) -> Option<Outcome> {
    let (majority, granted) = (majority(votes.len()), grants(votes));
    if granted >= majority {
        return Some(Outcome::Granted { token: None });
    }
    if granted + open >= majority || most_answered(votes).is_none() {
        return None;
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
    Some(Outcome::Refused { retry_after })
}
