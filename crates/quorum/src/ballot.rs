//! One question to all stores, and what becomes of it.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};
use tower_distributed_lock::{StoreError, StoreErrorKind};

use crate::watched::Watched;

/// What a store answered.
pub(crate) type Vote<T> = Result<T, StoreError>;

/// What the stores have answered so far.
pub(crate) type Votes<T> = [Option<Vote<T>>];

/// A question to all stores, in the hand of the one who asks. Dropping it ends a question that is still open as [failed](Verdict).
#[derive(Debug)]
pub(crate) struct Ballot<T>(Arc<Paper<T>>);

/// The same question, in the hands of the tasks that ask one store each.
///
/// A vote counts until there is a verdict, and never after. Both change under one mutex, under which only that of the ledger's
/// entry and that of a room are taken. So a task whose vote came too late learns the verdict, and no vote falls between them.
#[derive(Debug)]
pub(crate) struct Paper<T>(Watched<Sheet<T>>);

#[derive(Debug)]
struct Sheet<T> {
    votes: Vec<Option<Vote<T>>>,
    verdict: Option<Verdict>,
}

/// How a question ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A majority agreed.
    Agreed,
    /// A majority answered, and did not agree.
    Refused,
    /// Too few stores answered.
    Failed,
}

impl<T> Ballot<T> {
    pub(crate) fn new(stores: usize) -> Self {
        let votes = std::iter::repeat_with(|| None).take(stores).collect();
        let verdict = None;
        Self(Arc::new(Paper(Watched::new(Sheet { votes, verdict }))))
    }

    pub(crate) fn paper(&self) -> Arc<Paper<T>> {
        self.0.clone()
    }

    /// Waits until the votes decide or all stores have voted, but not longer than `until`. Returns whether it is over.
    pub(crate) async fn wait(
        &self,
        until: Instant,
        mut decided: impl FnMut(&Votes<T>) -> bool,
    ) -> bool {
        let decided = |sheet: &Sheet<T>| {
            let over = sheet.votes.iter().all(Option::is_some) || decided(&sheet.votes);
            over.then_some(())
        };
        timeout_at(until, self.0.0.until(decided)).await.is_ok()
    }

    /// Ends the question. `count` finds the verdict and the result in the votes.
    pub(crate) fn close<R>(self, count: impl FnOnce(&Votes<T>) -> (Verdict, R)) -> R {
        self.0.0.change(|sheet| {
            let (verdict, result) = count(&sheet.votes);
            sheet.verdict = Some(verdict);
            result
        })
    }

    /// Waits for a decision, and ends the question. Without one it fails; `has_effect` says whether a store may have been changed
    /// all the same.
    pub(crate) async fn decision<R>(
        self,
        until: Instant,
        decide: impl Fn(&Votes<T>) -> Option<R>,
        has_effect: impl FnOnce(&Votes<T>) -> bool,
    ) -> Vote<R> {
        self.wait(until, |votes| decide(votes).is_some()).await;
        self.close(|votes| match decide(votes) {
            Some(result) => (Verdict::Agreed, Ok(result)),
            None => (Verdict::Failed, Err(no_majority(votes, has_effect(votes)))),
        })
    }
}

impl<T> Drop for Ballot<T> {
    fn drop(&mut self) {
        if self.0.0.lock().verdict.is_none() {
            self.0
                .0
                .change(|sheet| sheet.verdict = Some(Verdict::Failed));
        }
    }
}

impl<T> Paper<T> {
    /// Counts the vote, if it is in time.
    pub(crate) fn cast(&self, store: usize, vote: Vote<T>) {
        self.0.change(|sheet| {
            if sheet.verdict.is_none() {
                sheet.votes[store] = Some(vote);
            }
        });
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0.lock().verdict.is_none()
    }

    /// Waits for the verdict.
    pub(crate) async fn verdict(&self) -> Verdict {
        self.0.until(|sheet| sheet.verdict).await
    }
}

/// The number of stores in a majority.
pub(crate) fn majority(stores: usize) -> usize {
    stores / 2 + 1
}

/// How many stores have answered without an error.
pub(crate) fn answered<T>(votes: &Votes<T>) -> usize {
    votes.iter().flatten().filter(|vote| vote.is_ok()).count()
}

/// Decides when a majority of the stores has answered.
pub(crate) fn most_answered<T>(votes: &Votes<T>) -> Option<()> {
    (answered(votes) >= majority(votes.len())).then_some(())
}

/// Why there was no majority. `has_effect` says whether a store may have been changed all the same.
pub(crate) fn no_majority<T>(votes: &Votes<T>, has_effect: bool) -> StoreError {
    use StoreErrorKind::{Conflict, Refused, Transient, Unacknowledged, Unanswered, Unreachable};
    let errors = || {
        votes
            .iter()
            .flatten()
            .filter_map(|vote| vote.as_ref().err())
    };
    let count = |kind| errors().filter(|error| error.kind() == kind).count();
    let silent = votes.iter().filter(|vote| vote.is_none()).count();
    let kind = if count(Conflict) >= majority(votes.len()) {
        Conflict
    } else if count(Refused) >= majority(votes.len()) {
        Refused
    } else if has_effect || silent + count(Unanswered) > 0 {
        Unanswered
    } else if count(Transient) + count(Unacknowledged) > 0 {
        Transient
    } else {
        Unreachable
    };
    let cause = NoMajority {
        of: votes.len(),
        answered: answered(votes),
        failed: errors().count(),
        silent,
        source: errors().next().cloned(),
    };
    StoreError::new(kind, cause)
}

#[derive(Debug, thiserror::Error)]
#[error(
    "no majority: of {of} stores {answered} answered, {failed} failed and {silent} did not answer in time"
)]
struct NoMajority {
    of: usize,
    answered: usize,
    failed: usize,
    silent: usize,
    source: Option<StoreError>,
}
