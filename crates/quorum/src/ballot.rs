//! One question to all stores.

use std::future::poll_fn;
use std::task::Poll;

use futures_util::future::{BoxFuture, FutureExt, JoinAll, join_all};
use tokio::time::{Instant, timeout_at};
use tower_distributed_lock::error::{StoreError, StoreErrorKind};
use tower_distributed_lock::store::LockStore;

use crate::QuorumStore;

/// What a store answered.
pub(crate) type Vote<T> = Result<T, StoreError>;

/// What the stores have answered so far.
pub(crate) type Votes<T> = [Option<Vote<T>>];

/// One question to all stores, and their votes.
pub(crate) struct Ballot<T> {
    pub(crate) votes: Vec<Option<Vote<T>>>,
    questions: Vec<BoxFuture<'static, Vote<T>>>,
}

impl<S: LockStore> QuorumStore<S> {
    /// A question to every store. Nothing is asked before [`Ballot::wait`].
    pub(crate) fn ballot<T, F>(&self, ask: impl Fn(Self, usize) -> F) -> Ballot<T>
    where
        F: Future<Output = Vote<T>> + Send + 'static,
    {
        let stores = 0..self.shared.stores.len();
        Ballot {
            votes: stores.clone().map(|_| None).collect(),
            questions: stores.map(|at| ask(self.clone(), at).boxed()).collect(),
        }
    }
}

impl<T> Ballot<T> {
    /// Asks every store, in order, and waits until the votes decide or all stores have voted, but not longer than `until`.
    /// Returns whether it is over.
    pub(crate) async fn wait(
        &mut self,
        until: Instant,
        decided: impl Fn(&Votes<T>) -> bool,
    ) -> bool {
        let votes = poll_fn(|cx| {
            for (vote, question) in self.votes.iter_mut().zip(&mut self.questions) {
                if vote.is_none()
                    && let Poll::Ready(answer) = question.poll_unpin(cx)
                {
                    *vote = Some(answer);
                }
            }
            match decided(&self.votes) || open(&self.votes) == 0 {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        });
        timeout_at(until, votes).await.is_ok()
    }

    /// The questions that are not answered yet.
    pub(crate) fn rest(&mut self) -> JoinAll<BoxFuture<'static, Vote<T>>> {
        let all = self.votes.iter().zip(self.questions.drain(..));
        join_all(all.filter_map(|(vote, question)| vote.is_none().then_some(question)))
    }
}

/// The number of stores in a majority.
pub(crate) fn majority(stores: usize) -> usize {
    stores / 2 + 1
}

/// How many stores have not voted.
pub(crate) fn open<T>(votes: &Votes<T>) -> usize {
    votes.iter().filter(|vote| vote.is_none()).count()
}

/// How many stores have answered without an error.
fn answered<T>(votes: &Votes<T>) -> usize {
    votes.iter().flatten().filter(|vote| vote.is_ok()).count()
}

/// Decides when a majority of the stores has answered.
pub(crate) fn most_answered<T>(votes: &Votes<T>) -> Option<()> {
    (answered(votes) >= majority(votes.len())).then_some(())
}

/// What a question does to a store that answers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Nothing,
    /// It changes the store, which takes that back if too few of its replicas acknowledge it.
    Attempt,
    /// It changes the store, even if too few of its replicas acknowledge it.
    Change,
}

/// Why there was no majority for a question with this effect.
pub(crate) fn no_majority<T>(votes: &Votes<T>, effect: Effect) -> StoreError {
    use StoreErrorKind::{Conflict, Refused, Transient, Unacknowledged, Unanswered, Unreachable};
    let voted = votes.iter().flatten();
    let errors: Vec<_> = voted.filter_map(|vote| vote.as_ref().err()).collect();
    let count = |kind| errors.iter().filter(|error| error.kind() == kind).count();
    let (of, answered) = (votes.len(), answered(votes));
    let is_unknown = open(votes) + count(Unanswered) > 0
        || effect != Effect::Nothing && answered > 0
        || effect == Effect::Change && count(Unacknowledged) > 0;
    let kind = match () {
        () if count(Conflict) >= majority(of) => Conflict,
        () if count(Refused) >= majority(of) => Refused,
        () if is_unknown => Unanswered,
        () if count(Transient) + count(Unacknowledged) > 0 => Transient,
        () => Unreachable,
    };
    let why = NoMajority {
        of,
        answered,
        failed: errors.len(),
        source: errors.first().copied().cloned(),
    };
    StoreError::new(kind, why)
}

#[derive(Debug, thiserror::Error)]
#[error("no majority in time: of {of} stores {answered} answered and {failed} failed")]
struct NoMajority {
    of: usize,
    answered: usize,
    failed: usize,
    source: Option<StoreError>,
}
