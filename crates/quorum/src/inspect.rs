//! One key in all stores, for an operator, and the audit of all stores.

use std::cmp::Reverse;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;
use tower_distributed_lock::LockKey;
use tower_distributed_lock::audit::{Audit, Deployment, Warning};
use tower_distributed_lock::error::{StoreError, StoreErrorKind};
use tower_distributed_lock::store::{Holder, Inspect, Inspection, LockStore};

use crate::QuorumStore;
use crate::ballot::{Vote, majority, most_answered, no_majority};

/// How long a store may take for its audit.
const LONGEST_AUDIT: Duration = Duration::from_secs(10);

/// A hold counts while a majority carries it: holds of a minority are not shown. Nothing is listed.
impl<S: Inspect> Inspect for QuorumStore<S> {
    async fn inspect(&self, key: &LockKey) -> Result<Inspection, StoreError> {
        let seen = self.each(self.store_timeout, |store| store.inspect(key));
        let seen = seen.await;
        most_answered(&seen).ok_or_else(|| no_majority(&seen, false))?;
        Ok(together(seen))
    }

    async fn force_unlock(&self, key: &LockKey) -> Result<bool, StoreError> {
        let mut ballot = self.ballot(|quorum, at| {
            let key = key.clone();
            async move { quorum.shared.stores[at].force_unlock(&key).await }
        });
        // Not only for a majority: the caller finds the lock free in each store that is in time.
        ballot.wait(self.deadline(None), |_| false).await;
        self.shared.running.spawn(ballot.rest());
        let votes = &ballot.votes;
        most_answered(votes).ok_or_else(|| no_majority(votes, true))?;
        Ok(votes.iter().flatten().flatten().any(|&held| held))
    }
}

impl<S: LockStore> QuorumStore<S> {
    /// Asks every store, and drops the question to a store that takes longer than `limit`.
    async fn each<'a, T, F>(&'a self, limit: Duration, ask: impl Fn(&'a S) -> F) -> Vec<Option<T>>
    where
        F: Future<Output = T>,
    {
        let questions = self.shared.stores.iter();
        let answers = join_all(questions.map(|store| timeout(limit, ask(store)))).await;
        answers.into_iter().map(Result::ok).collect()
    }

    /// The audits of all stores, as one. A store that does not answer is part of the report: the others carry the locks.
    pub(crate) async fn audit_all(&self) -> Audit {
        let members = self.stores();
        let mut audit = Audit::new(Deployment::Quorum { members });
        let silent = || StoreError::new(StoreErrorKind::Unreachable, "the audit took too long");
        let audits = self.each(LONGEST_AUDIT, S::audit).await.into_iter();
        audit.members = audits
            .map(|audited| audited.unwrap_or_else(|| Err(silent())))
            .collect();
        let id = |member: &Vote<Audit>| member.as_ref().ok()?.server_id.clone();
        let ids: Vec<_> = audit.members.iter().map(id).collect();
        for (n, member) in audit.members.iter().enumerate() {
            let mut warn = |kind, text| audit.warnings.push(Warning::new(kind, text));
            if member.is_err() {
                warn("member_silent", format!("store {} does not answer", n + 1));
            }
            let is_here = |other: &Option<_>| other.is_some() && *other == ids[n];
            if let Some(twin) = ids[..n].iter().position(is_here) {
                let (one, other) = (twin + 1, n + 1);
                let text = format!(
                    "stores {one} and {other} are one server, and fail together: use independent ones"
                );
                warn("same_server", text);
            }
        }
        audit
    }
}

/// The holders in a majority of the stores, and the waiters in any.
fn together(seen: Vec<Option<Vote<Inspection>>>) -> Inspection {
    let majority = majority(seen.len());
    let mut together = Inspection::default();
    let mut holders = Vec::new();
    for inspection in seen.into_iter().flatten().flatten() {
        together.truncated |= inspection.truncated;
        holders.extend(inspection.holders);
        for waiter in inspection.waiters {
            if !together.waiters.contains(&waiter) {
                together.waiters.push(waiter);
            }
        }
    }
    // A hold counts as long as a majority carries it: until the store ends it that makes them one.
    holders.sort_by_key(|holder| Reverse(holder.remaining));
    for (n, holder) in (1..).zip(&holders) {
        let is_same = |other: &&Holder| other.id == holder.id && other.mode == holder.mode;
        if holders[..n].iter().filter(is_same).count() == majority {
            together.holders.push(holder.clone());
        }
    }
    together
}
