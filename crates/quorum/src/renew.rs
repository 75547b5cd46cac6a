//! Renewals and checks of holds.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tower_distributed_lock::LockStore;
use tower_distributed_lock::store::{HoldStatus, Renewal};

use crate::QuorumStore;
use crate::ballot::{Ballot, Verdict, Vote, Votes, answered, majority, no_majority};
use crate::ledger::Entry;

/// A hold that is asked about.
struct Asked {
    entry: Arc<Entry>,
    /// The lease that it is to have; `None`: it is only checked.
    lease: Option<Duration>,
    /// How long the question waits for the stores to decide about this hold.
    until: Instant,
}

type Statuses = Vec<HoldStatus>;

impl<S: LockStore> QuorumStore<S> {
    /// Asks every store. Each hold has its own decision and its own limit, so that a short lease does not shorten the limit of
    /// another hold. A hold that is not decided is [`HoldStatus::Unknown`]. An empty batch asks whether a majority answers.
    pub(crate) async fn renew_majority(&self, renewals: &[Renewal]) -> Vote<Statuses> {
        let asked: Vec<_> = renewals.iter().map(|renewal| self.asked(renewal)).collect();
        let renewals: Arc<[Renewal]> = renewals.into();
        let ballot = self.ask_all(|quorum, at| {
            let renewals = renewals.clone();
            async move { quorum.shared.stores[at].renew(&renewals).await }
        });
        let mut limits: Vec<_> = asked.iter().map(|hold| hold.until).collect();
        limits.sort_unstable();
        limits.dedup();
        if limits.is_empty() {
            limits.push(self.deadline());
        }
        for limit in limits {
            let decided = |votes: &Votes<_>| {
                let mut holds = asked.iter().enumerate();
                let counted = !asked.is_empty() || answered(votes) >= majority(votes.len());
                // Holds whose limit has passed are not waited for.
                counted
                    && holds.all(|(n, hold)| hold.until < limit || hold.status(n, votes).is_some())
            };
            if ballot.wait(limit, decided).await {
                break;
            }
        }
        ballot.close(|votes| (Verdict::Agreed, decide(&asked, votes)))
    }

    fn asked(&self, renewal: &Renewal) -> Asked {
        Asked {
            entry: self.shared.ledger.known(&renewal.hold, self.stores()),
            lease: renewal.lease,
            until: match renewal.lease {
                Some(lease) => self.until(Instant::now(), lease),
                None => self.deadline(),
            },
        }
    }

    /// Asks every store at the same time. What was sent is awaited in the background.
    pub(crate) fn ask_all<T, F>(&self, ask: impl Fn(Self, usize) -> F) -> Ballot<T>
    where
        T: Send + 'static,
        F: Future<Output = Vote<T>> + Send + 'static,
    {
        let ballot = Ballot::new(self.stores());
        for at in 0..self.stores() {
            let (paper, answer) = (ballot.paper(), ask(self.clone(), at));
            self.shared.running.spawn(async move {
                paper.cast(at, answer.await);
            });
        }
        ballot
    }
}

/// Decides about each hold. The question fails if too few stores have answered to decide about any.
fn decide(asked: &[Asked], votes: &Votes<Statuses>) -> Vote<Statuses> {
    let holds = asked.iter().enumerate();
    let statuses: Vec<_> = holds.map(|(n, hold)| hold.status(n, votes)).collect();
    if statuses.iter().all(Option::is_none) && answered(votes) < majority(votes.len()) {
        let has_effect = asked.iter().any(|hold| hold.lease.is_some());
        return Err(no_majority(votes, has_effect));
    }
    for (hold, status) in asked.iter().zip(&statuses) {
        if let (Some(lease), Some(HoldStatus::Held)) = (hold.lease, status) {
            hold.entry.remember(lease);
        }
    }
    let statuses = statuses.into_iter();
    Ok(statuses
        .map(|status| status.unwrap_or(HoldStatus::Unknown))
        .collect())
}

impl Asked {
    /// What the votes say about this hold, which has the `n`th place in the question.
    fn status(&self, n: usize, votes: &Votes<Statuses>) -> Option<HoldStatus> {
        let said = |at: usize| votes[at].as_ref()?.as_ref().ok()?.get(n).copied();
        self.entry.state().unbroken(|at, _| said(at))
    }
}
