//! One key in all stores, for an operator, and the audit of all stores.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tower_distributed_lock::LockKey;
use tower_distributed_lock::audit::{Audit, Deployment, Warning};
use tower_distributed_lock::error::{StoreError, StoreErrorKind};
use tower_distributed_lock::store::{Holder, Inspect, Inspection, LockStore, ProcessInfo};
use uuid::Uuid;

use crate::QuorumStore;
use crate::ballot::{Ballot, Vote, Votes, majority, most_answered, no_majority};

/// How long a store may take for its audit.
const LONGEST_AUDIT: Duration = Duration::from_secs(10);

/// A hold counts while a majority carries it: holds of a minority are not shown. Nothing is listed.
impl<S: Inspect> Inspect for QuorumStore<S> {
    async fn inspect(&self, key: &LockKey) -> Result<Inspection, StoreError> {
        let seen = self.look(|store| store.inspect(key)).await?;
        Ok(together(seen, majority(self.stores())))
    }

    async fn force_unlock(&self, key: &LockKey) -> Result<bool, StoreError> {
        let unlock = |quorum: Self, at: usize| {
            let key = key.clone();
            async move { quorum.shared.stores[at].force_unlock(&key).await }
        };
        Ok(self.change(unlock).await?.contains(&true))
    }

    async fn announce(
        &self,
        client: Uuid,
        process: &ProcessInfo,
        lifetime: Duration,
    ) -> Result<(), StoreError> {
        let announce = |quorum: Self, at: usize| {
            let process = process.clone();
            async move {
                let store = &quorum.shared.stores[at];
                store.announce(client, &process, lifetime).await
            }
        };
        self.change(announce).await.map(drop)
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
    async fn look<'a, T: Clone, F>(&'a self, ask: impl Fn(&'a S) -> F) -> Vote<Vec<T>>
    where
        F: Future<Output = Vote<T>>,
    {
        let mut ballot = Ballot::new(self.shared.stores.iter().map(ask));
        ballot.wait(self.deadline(), |_| false).await;
        answers(&ballot.votes, false)
    }

    /// Asks every store for a change, and waits for all of them, as long as a store may take. Others may make it later.
    async fn change<T, F>(&self, ask: impl Fn(Self, usize) -> F) -> Vote<Vec<T>>
    where
        T: Clone + Send + Sync + 'static,
        F: Future<Output = Vote<T>> + Send + 'static,
    {
        let questions: Vec<_> = (0..self.stores()).map(|at| ask(self.clone(), at)).collect();
        let change = |quorum: Self, answer: oneshot::Sender<_>| async move {
            let mut ballot = Ballot::new(questions.into_iter());
            ballot.wait(quorum.deadline(), |_| false).await;
            drop(answer.send(answers(&ballot.votes, true)));
            ballot.finish(|_, _| async {}).await;
        };
        self.in_background(change).await
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

/// What the stores have answered, if most have.
fn answers<T: Clone>(votes: &Votes<T>, has_effect: bool) -> Vote<Vec<T>> {
    match most_answered(votes) {
        Some(()) => Ok(votes.iter().flatten().flatten().cloned().collect()),
        None => Err(no_majority(votes, has_effect)),
    }
}

/// The holders in a majority of the stores, and the waiters in any.
fn together(seen: Vec<Inspection>, majority: usize) -> Inspection {
    let mut together = Inspection::default();
    let mut holders = Vec::new();
    for inspection in seen {
        together.truncated |= inspection.truncated;
        holders.extend(inspection.holders);
        for waiter in inspection.waiters {
            if !together.waiters.contains(&waiter) {
                together.waiters.push(waiter);
            }
        }
    }
    while let Some(mut holder) = holders.pop() {
        let is_same = |other: &mut Holder| other.id == holder.id && other.mode == holder.mode;
        let others = holders.extract_if(.., is_same);
        let mut lives: Vec<_> = others.map(|other| other.remaining).collect();
        lives.push(holder.remaining);
        lives.sort_unstable();
        // It counts as long as a majority carries it.
        if let Some(first_to_end) = lives.len().checked_sub(majority) {
            holder.remaining = lives[first_to_end];
            together.holders.push(holder);
        }
    }
    together
}
