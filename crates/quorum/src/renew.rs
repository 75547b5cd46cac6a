//! Renewals and checks of holds.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tower_distributed_lock::store::{HoldStatus, LockStore, Renewal};

use crate::QuorumStore;
use crate::ballot::{Vote, Votes, most_answered, no_majority};
use crate::ledger::Entry;

/// A hold that is asked about.
struct Asked {
    entry: Arc<Entry>,
    /// The lease that it is to have; `None`: it is only checked.
    lease: Option<Duration>,
    /// How long the question waits for the stores to decide about this hold.
    until: Instant,
}

impl<S: LockStore> QuorumStore<S> {
    /// Asks every store. Each hold has its own decision and its own limit, so that a short lease does not shorten the limit of
    /// another hold. A hold that is not decided is [`HoldStatus::Unknown`]. An empty batch asks whether a majority answers.
    pub(crate) async fn renew_majority(&self, renewals: &[Renewal]) -> Vote<Vec<HoldStatus>> {
        let asked: Vec<_> = renewals.iter().map(|renewal| self.asked(renewal)).collect();
        let renewals: Arc<[Renewal]> = renewals.into();
        let mut ballot = self.ballot(|quorum, at| {
            let renewals = renewals.clone();
            async move { quorum.shared.stores[at].renew(&renewals).await }
        });
        let mut limits: Vec<_> = asked.iter().map(|hold| hold.until).collect();
        limits.push(self.deadline(None));
        limits.sort_unstable();
        for limit in limits {
            let decided = |votes: &Votes<_>| {
                // Holds whose limit has passed are not waited for.
                let mut holds = (0..).zip(&asked).filter(|(_, hold)| hold.until >= limit);
                holds.all(|(n, hold)| hold.status(n, votes).is_some())
                    && (!asked.is_empty() || most_answered(votes).is_some())
            };
            if ballot.wait(limit, decided).await {
                break;
            }
        }
        let decision = decide(&asked, &ballot.votes);
        self.shared.running.spawn(ballot.rest());
        decision
    }

    fn asked(&self, renewal: &Renewal) -> Asked {
        Asked {
            entry: self.entry(&renewal.hold, true, Duration::ZERO),
            lease: renewal.lease,
            until: self.deadline(renewal.lease),
        }
    }
}

/// Decides about each hold. The question fails if too few stores have answered to decide about any.
fn decide(asked: &[Asked], votes: &Votes<Vec<HoldStatus>>) -> Vote<Vec<HoldStatus>> {
    let holds = asked.iter().enumerate();
    let statuses: Vec<_> = holds.map(|(n, hold)| hold.status(n, votes)).collect();
    if statuses.iter().all(Option::is_none) && most_answered(votes).is_none() {
        let changes = asked.iter().any(|hold| hold.lease.is_some());
        return Err(no_majority(votes, changes));
    }
    for (hold, status) in asked.iter().zip(&statuses) {
        if let (Some(lease), Some(HoldStatus::Held)) = (hold.lease, status) {
            hold.entry.remember(lease);
        }
    }
    let known = |status: Option<_>| status.unwrap_or(HoldStatus::Unknown);
    Ok(statuses.into_iter().map(known).collect())
}

impl Asked {
    /// What the votes say about this hold, which has the `n`th place in the question.
    fn status(&self, n: usize, votes: &Votes<Vec<HoldStatus>>) -> Option<HoldStatus> {
        let said = |at: usize| votes[at].as_ref()?.as_ref().ok()?.get(n).copied();
        self.entry.unbroken(|at, _| said(at))
    }
}
