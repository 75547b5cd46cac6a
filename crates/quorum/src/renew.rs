//! Renewals and checks of holds.

use std::sync::Arc;

use tower_distributed_lock::store::{HoldStatus, LockStore, Renewal};

use crate::QuorumStore;
use crate::ballot::{Vote, Votes, most_answered, no_majority};
use crate::ledger::IS_HELD;

impl<S: LockStore> QuorumStore<S> {
    /// Asks every store. Each hold has its own decision and its own limit, so that a short lease does not shorten the limit of
    /// another hold. A hold that is not decided is [`HoldStatus::Unknown`]. An empty batch asks whether a majority answers.
    pub(crate) async fn renew_majority(&self, renewals: &[Renewal]) -> Vote<Vec<HoldStatus>> {
        let asked = |renewal: &Renewal| {
            let lease = renewal.lease.unwrap_or_default();
            let entry = self.entry(&renewal.hold, IS_HELD, lease);
            (entry, self.deadline(renewal.lease))
        };
        let holds: Vec<_> = renewals.iter().map(asked).collect();
        // What the votes say about a hold.
        let status = |n: usize, votes: &Votes<Vec<HoldStatus>>| {
            let said = |at: usize, _| votes[at].as_ref()?.as_ref().ok()?.get(n).copied();
            holds[n].0.known().unbroken(said)
        };
        let renewals: Arc<[Renewal]> = renewals.into();
        let mut ballot = self.ballot(|quorum, at| {
            let renewals = renewals.clone();
            async move { quorum.shared.stores[at].renew(&renewals).await }
        });
        let mut limits: Vec<_> = holds.iter().map(|(_, until)| *until).collect();
        limits.push(self.deadline(None));
        limits.sort_unstable();
        for limit in limits {
            let decided = |votes: &Votes<_>| {
                // Holds whose limit has passed are not waited for.
                let mut open = (0..holds.len()).filter(|&n| holds[n].1 >= limit);
                open.all(|n| status(n, votes).is_some())
                    && (!holds.is_empty() || most_answered(votes).is_some())
            };
            if ballot.wait(limit, decided).await {
                break;
            }
        }
        self.shared.running.spawn(ballot.rest());
        let votes = &ballot.votes;
        let statuses: Vec<_> = (0..holds.len()).map(|n| status(n, votes)).collect();
        if statuses.iter().all(Option::is_none) && most_answered(votes).is_none() {
            let changes = renewals.iter().any(|renewal| renewal.lease.is_some());
            return Err(no_majority(votes, changes));
        }
        let known = |status: Option<_>| status.unwrap_or(HoldStatus::Unknown);
        Ok(statuses.into_iter().map(known).collect())
    }
}
