//! One key in all stores, for an operator.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;
use tower_distributed_lock::audit::{Audit, Deployment, Warning};
use tower_distributed_lock::store::{Holder, Inspect, Inspection, ProcessInfo};
use tower_distributed_lock::{LockKey, LockStore, StoreError, StoreErrorKind};
use uuid::Uuid;

use crate::QuorumStore;
use crate::ballot::{Vote, Votes, majority, most_answered, no_majority};

/// How long a store may take for its audit.
const LONGEST_AUDIT: Duration = Duration::from_secs(10);

/// How many waiters are shown.
const SHOWN: usize = 100;

/// A hold counts while a majority carries it: holds of a minority are not shown. Nothing is listed.
impl<S: Inspect> Inspect for QuorumStore<S> {
    async fn inspect(&self, key: &LockKey) -> Result<Inspection, StoreError> {
        let seen = self.look(|store| store.inspect(key)).await?;
        Ok(together(self.stores(), &seen))
    }

    async fn force_unlock(&self, key: &LockKey) -> Result<bool, StoreError> {
        let ballot = self.ask_all(|quorum, at| {
            let key = key.clone();
            async move { quorum.shared.stores[at].force_unlock(&key).await }
        });
        let until = self.deadline();
        // Not only for a majority: the caller finds the lock free in each store that is in time.
        ballot.wait(until, |_| false).await;
        let ended = |votes: &Votes<bool>| {
            let held = votes.iter().flatten().flatten().any(|&held| held);
            most_answered(votes).map(|()| held)
        };
        ballot.decision(until, ended, |_| true).await
    }

    async fn announce(
        &self,
        client: Uuid,
        process: &ProcessInfo,
        lifetime: Duration,
    ) -> Result<(), StoreError> {
        let ballot = self.ask_all(|quorum, at| {
            let process = process.clone();
            async move {
                let store = &quorum.shared.stores[at];
                store.announce(client, &process, lifetime).await
            }
        });
        let announced = ballot.decision(self.deadline(), most_answered, |_| true);
        announced.await
    }

    /// An entry counts that one store has.
    async fn processes(&self, clients: &[Uuid]) -> Result<Vec<Option<ProcessInfo>>, StoreError> {
        let known = self.look(|store| store.processes(clients)).await?;
        let entry = |n: usize| known.iter().find_map(|entries| entries.get(n)?.clone());
        Ok((0..clients.len()).map(entry).collect())
    }
}

impl<S: LockStore> QuorumStore<S> {
    /// Asks every store something that changes nothing, and drops the questions that take too long.
    async fn look<'a, T, F>(&'a self, ask: impl Fn(&'a S) -> F) -> Vote<Vec<T>>
    where
        F: Future<Output = Vote<T>>,
    {
        let limit = self.store_timeout;
        let asked = self.shared.stores.iter();
        let asked = asked.map(|store| timeout(limit, ask(store)));
        let votes: Vec<_> = join_all(asked).await.into_iter().map(Result::ok).collect();
        match most_answered(&votes) {
            Some(()) => Ok(votes.into_iter().flatten().flatten().collect()),
            None => Err(no_majority(&votes, false)),
        }
    }

    /// The audits of all stores, as one. A store that does not answer is part of the report: the others carry the locks.
    pub(crate) async fn audit_all(&self) -> Audit {
        let members = self.stores();
        let mut audit = Audit::new(Deployment::Quorum { members });
        let audits = self.shared.stores.iter().map(|store| async move {
            let audited = timeout(LONGEST_AUDIT, store.audit()).await;
            let silent = || StoreError::new(StoreErrorKind::Unreachable, "the audit took too long");
            audited.unwrap_or_else(|_| Err(silent()))
        });
        audit.members = join_all(audits).await;
        let ids = audit
            .members
            .iter()
            .map(|member| member.as_ref().ok()?.server_id.clone());
        let ids: Vec<_> = ids.collect();
        for (n, member) in audit.members.iter().enumerate() {
            if member.is_err() {
                let text = format!("store {} does not answer", n + 1);
                audit.warnings.push(Warning::new("member_silent", text));
            }
            let twin = ids[..n]
                .iter()
                .position(|other| other.is_some() && *other == ids[n]);
            if let Some(twin) = twin {
                let text = format!(
                    "stores {} and {} are one server, and fail together: use independent ones",
                    twin + 1,
                    n + 1
                );
                audit.warnings.push(Warning::new("same_server", text));
            }
        }
        audit
    }
}

/// The holders of a key in a majority of `stores`, and its waiters in any.
fn together(stores: usize, seen: &[Inspection]) -> Inspection {
    let mut carried: Vec<(Holder, Vec<Duration>)> = Vec::new();
    for holder in seen.iter().flat_map(|inspection| &inspection.holders) {
        let is_same = |other: &Holder| other.id == holder.id && other.mode == holder.mode;
        match carried.iter_mut().find(|(other, _)| is_same(other)) {
            Some((_, lives)) => lives.push(holder.remaining),
            None => carried.push((holder.clone(), vec![holder.remaining])),
        }
    }
    let mut together = Inspection::default();
    for (mut holder, mut lives) in carried {
        // It counts as long as a majority carries it.
        lives.sort_unstable_by(|one, other| other.cmp(one));
        if let Some(&remaining) = lives.get(majority(stores) - 1) {
            holder.remaining = remaining;
            together.holders.push(holder);
        }
    }
    for waiter in seen.iter().flat_map(|inspection| &inspection.waiters) {
        if !together.waiters.contains(waiter) {
            together.waiters.push(waiter.clone());
        }
    }
    together.truncated = together.waiters.len() > SHOWN || seen.iter().any(|seen| seen.truncated);
    together.waiters.truncate(SHOWN);
    together
}
