//! One key in all stores, for an operator, and the audit of all stores.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;
use tower_distributed_lock::LockKey;
use tower_distributed_lock::audit::{Audit, Deployment, Warning};
use tower_distributed_lock::error::{StoreError, StoreErrorKind};
use tower_distributed_lock::store::{Holder, Inspect, Inspection, LockStore};

use crate::QuorumStore;
use crate::ballot::{Effect, Vote, Votes, majority, most_answered, no_majority};

/// How long a store may take for its audit.
const LONGEST_AUDIT: Duration = Duration::from_secs(10);

/// A hold counts while a majority carries it: holds of a minority are not shown. Nothing is listed.
impl<S: Inspect> Inspect for QuorumStore<S> {
    async fn inspect(&self, key: &LockKey) -> Result<Inspection, StoreError> {
        let seen = self.each(self.store_timeout, |store| store.inspect(key));
        let seen = seen.await;
        most_answered(&seen).ok_or_else(|| no_majority(&seen, Effect::Nothing))?;
        Ok(together(&seen))
    }

    async fn force_unlock(&self, key: &LockKey) -> Result<bool, StoreError> {
        let unlock = |quorum: Self, at: usize| {
            let key = key.clone();
            async move { quorum.shared.stores[at].force_unlock(&key).await }
        };
        let was_held = |votes: &Votes<bool>| {
            most_answered(votes)?;
            Some(votes.iter().flatten().flatten().any(|&held| held))
        };
        self.ask(Effect::Change, unlock, was_held).await
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
        let members = self.shared.stores.len();
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
fn together(seen: &Votes<Inspection>) -> Inspection {
    let (majority, seen) = (majority(seen.len()), seen.iter().flatten().flatten());
    let waiters: BTreeSet<_> = seen.clone().flat_map(|one| &one.waiters).cloned().collect();
    let mut holders: Vec<_> = seen.clone().flat_map(|one| &one.holders).collect();
    // A hold counts until the store ends it with which they are a majority.
    holders.sort_by_key(|holder| Reverse(holder.remaining));
    let counts = |n: &usize| {
        let is_same =
            |other: &&&Holder| (&other.id, other.mode) == (&holders[*n].id, holders[*n].mode);
        holders[..=*n].iter().filter(is_same).count() == majority
    };
    let held = (0..holders.len()).filter(counts);
    let held = held.map(|n| holders[n].clone()).collect();
    let mut together = Inspection::new(held, waiters.into_iter().collect());
    together.truncated = seen.clone().any(|one| one.truncated);
    together
}
