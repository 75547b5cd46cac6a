//! Inspection of all stores, as one state; and their audits, as one audit.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{timeout, timeout_at};
use uuid::Uuid;

use super::QuorumStore;
use super::majority::{Vote, Votes, answered, no_majority};
use super::members::Members;
use crate::audit::{Audit, Deployment, Warning};
use crate::error::{Feature, StoreError, StoreErrorKind};
use crate::lock::LockKey;
use crate::store::inspect::missing;
use crate::store::listing::{each, foreign_cursor};
use crate::store::{
    Cursor, DynInspect, Holder, Inspect, Inspection, ListQuery, LockEntry, LockStore, Page,
    ProcessInfo, RecordEntry, SHOWN,
};

/// How long a store may take for a question that changes nothing, after which its answer is not awaited any more.
const LONGEST_INSPECTION: Duration = Duration::from_secs(30);

/// A hold counts while a majority carries it: holds of a minority are not shown.
impl<S: LockStore> Inspect for QuorumStore<S> {
    async fn inspect(&self, key: &LockKey) -> Result<Inspection, StoreError> {
        let seen = self.seen(key).await?;
        Ok(together(self.majority_count(), &seen))
    }

    async fn force_unlock(&self, key: &LockKey) -> Result<bool, StoreError> {
        let force = async |store: Arc<dyn DynInspect>, key| store.force_unlock(&key).await;
        let ended = self.ask_inspectors(key.clone(), force, true).await?;
        Ok(ended.contains(&Some(true)))
    }

    /// Lists one store after the other. A key is listed with the first listed store that carries a hold of it.
    async fn list_locks(&self, query: &ListQuery) -> Result<Page<LockEntry>, StoreError> {
        let mut position = Position::read(query)?;
        let mut entries = Vec::new();
        while position.store < self.count() {
            let mut part = query.clone().after(position.inner.take());
            part.limit -= entries.len();
            let store = self.member(position.store)?;
            let page = match timeout_at(self.deadline(), store.list_locks(&part)).await {
                Ok(Ok(page)) => page,
                failed => {
                    position.failed.insert(position.store);
                    // Up to this number of failed stores, one of the others carries every hold that counts.
                    if position.failed.len() > self.count() - self.majority_count() {
                        let votes = vec![failed.ok().map(|answer| answer.map(drop))];
                        return Err(no_majority(self.majority_count(), &votes, false));
                    }
                    position.store += 1;
                    continue;
                }
            };
            let before = Members::first(position.store).without(position.failed);
            let keys = page.entries.into_iter().map(|entry| entry.key).collect();
            entries.extend(each(keys, |key| self.first_seen(key, before)).await?);
            position.inner = page.next;
            position.store += usize::from(position.inner.is_none());
            if entries.len() >= query.limit || position.inner.is_some() {
                break;
            }
        }
        let next = (position.store < self.count()).then(|| position.cursor());
        Ok(Page::new(entries, next))
    }

    async fn list_records(&self, _: &ListQuery) -> Result<Page<RecordEntry>, StoreError> {
        Err(missing(Feature::Records))
    }

    async fn announce(
        &self,
        client: Uuid,
        process: &ProcessInfo,
        lifetime: Duration,
    ) -> Result<(), StoreError> {
        let announce = move |store: Arc<dyn DynInspect>, process| async move {
            store.announce(client, &process, lifetime).await
        };
        let announced = self.ask_inspectors(process.clone(), announce, true);
        announced.await.map(drop)
    }

    /// An entry counts that one store has.
    async fn processes(&self, clients: &[Uuid]) -> Result<Vec<Option<ProcessInfo>>, StoreError> {
        let ask =
            async |store: Arc<dyn DynInspect>, clients: Vec<_>| store.processes(&clients).await;
        let known = self.ask_inspectors(clients.to_vec(), ask, false).await?;
        let entry = |place: usize| {
            let mut known = known.iter().flatten();
            known.find_map(|processes| processes.get(place)?.clone())
        };
        Ok((0..clients.len()).map(entry).collect())
    }
}

impl<S: LockStore> QuorumStore<S> {
    /// A store that does not answer becomes part of the report: the other stores carry the locks.
    pub(super) async fn look_at_all(&self) -> Audit {
        let mut audit = Audit::new(Deployment::Quorum {
            members: self.count(),
        });
        let audits = self.shared.stores.iter().map(|store| async move {
            let audited = timeout(LONGEST_INSPECTION, store.audit()).await;
            audited.unwrap_or_else(|_| Err(unreachable("an audit took too long")))
        });
        audit.members = join_all(audits).await;
        let mut seen = HashMap::new();
        for (n, member) in (1..).zip(&audit.members) {
            match member {
                Err(_) => {
                    let text = format!("store {n} does not answer");
                    audit.warnings.push(Warning::new("member_silent", text));
                }
                Ok(member) => {
                    let Some(id) = &member.server_id else {
                        continue;
                    };
                    if let Some(other) = seen.insert(id, n) {
                        let text = format!(
                            "stores {other} and {n} are one server, and fail together: use independent ones"
                        );
                        audit.warnings.push(Warning::new("same_server", text));
                    }
                }
            }
        }
        audit
    }

    /// The inspector of one store.
    fn member(&self, place: usize) -> Result<&Arc<dyn DynInspect>, StoreError> {
        let inspector = self.shared.capabilities[place].inspector();
        inspector.map_err(|missing| StoreError::new(StoreErrorKind::Refused, missing))
    }

    /// The key, if a majority carries a hold of it and none of the stores `before` does.
    async fn first_seen(
        &self,
        key: LockKey,
        before: Members,
    ) -> Result<Option<LockEntry>, StoreError> {
        let seen = self.seen(&key).await?;
        let shows = |store: usize| seen[store].as_ref().is_some_and(Inspection::is_held);
        let inspection = together(self.majority_count(), &seen);
        let is_first = !before.iter().any(shows);
        Ok((is_first && inspection.is_held()).then(|| LockEntry::new(key, inspection)))
    }

    /// What each store has of the key.
    async fn seen(&self, key: &LockKey) -> Result<Vec<Option<Inspection>>, StoreError> {
        let inspect = async |store: Arc<dyn DynInspect>, key| store.inspect(&key).await;
        self.ask_inspectors(key.clone(), inspect, false).await
    }

    /// Asks every store `about` something, and waits for all answers in time; `None`: a store did not answer. Fails without a
    /// majority of answers. `has_effect`: the question may change a store, and a store that is late is changed all the same.
    /// Any other question is not sent to a store that is late with an earlier one, and is answered without that store: however
    /// often callers ask, only the questions of one time limit wait for it.
    async fn ask_inspectors<A, T, F>(
        &self,
        about: A,
        ask: impl Fn(Arc<dyn DynInspect>, A) -> F,
        has_effect: bool,
    ) -> Result<Vec<Option<T>>, StoreError>
    where
        A: Clone,
        T: Clone + Send + 'static,
        F: Future<Output = Vote<T>> + Send + 'static,
    {
        let until = self.deadline();
        let call = self.ask_all(|store| {
            let late = self.shared.late_inspections[store].clone();
            let asked = match has_effect || late.is_empty() {
                true => self.member(store).map(|of| ask(of.clone(), about.clone())),
                false => Err(unreachable("an earlier inspection has no answer yet")),
            };
            async move {
                let mut asked = pin!(asked?);
                if has_effect {
                    return asked.await;
                }
                if let Ok(answer) = timeout_at(until, &mut asked).await {
                    return answer;
                }
                let _late = late.token();
                let answer = timeout(LONGEST_INSPECTION, asked).await;
                answer.unwrap_or_else(|_| Err(unreachable("an inspection took too long")))
            }
        });
        let all = |votes: &Votes<T>| votes.iter().all(Option::is_some);
        call.wait(until, all).await;
        let majority = self.majority_count();
        let answers = |votes: &Votes<T>| {
            let answer = |vote: &Option<Vote<T>>| vote.clone()?.ok();
            (answered(votes) >= majority).then(|| votes.iter().map(answer).collect())
        };
        let decision = call.decision(until, majority, answers, |_| has_effect);
        decision.await
    }
}

fn unreachable(why: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Unreachable, why)
}

/// The position of a list: the store, the earlier stores that did not list to their end, and the store's own cursor.
#[derive(Default)]
struct Position {
    store: usize,
    failed: Members,
    inner: Option<Cursor>,
}

impl Position {
    fn read(query: &ListQuery) -> Result<Self, StoreError> {
        let Some(text) = query.position() else {
            return Ok(Self::default());
        };
        let mut parts = text.splitn(3, '/');
        let store = parts.next().and_then(|store| store.parse().ok());
        let failed = parts.next().and_then(|failed| failed.parse().ok());
        let (store, failed) = store.zip(failed).ok_or_else(foreign_cursor)?;
        let inner = parts.next().filter(|inner| !inner.is_empty());
        Ok(Self {
            store,
            failed: Members(failed),
            inner: inner.map(Cursor::new),
        })
    }

    fn cursor(&self) -> Cursor {
        let inner = self.inner.as_ref().map_or("", Cursor::as_str);
        Cursor::new(format!("{}/{}/{inner}", self.store, self.failed.0))
    }
}

/// The holders of a key by a majority, and its waiters in any store.
fn together(majority: usize, seen: &[Option<Inspection>]) -> Inspection {
    let seen = || seen.iter().flatten();
    let mut carried: Vec<(Holder, Vec<Duration>)> = Vec::new();
    for holder in seen().flat_map(|inspection| &inspection.holders) {
        let is_same = |other: &Holder| other.id == holder.id && other.mode == holder.mode;
        match carried.iter_mut().find(|(other, _)| is_same(other)) {
            Some((_, lives)) => lives.push(holder.remaining),
            None => carried.push((holder.clone(), vec![holder.remaining])),
        }
    }
    let counted = carried.into_iter().filter_map(|(holder, mut lives)| {
        // It counts as long as a majority carries it.
        lives.sort_unstable_by(|a, b| b.cmp(a));
        let remaining = *lives.get(majority - 1)?;
        Some(Holder {
            remaining,
            ..holder
        })
    });
    let mut waiters: Vec<String> = Vec::new();
    for waiter in seen().flat_map(|inspection| &inspection.waiters) {
        if !waiters.contains(waiter) {
            waiters.push(waiter.clone());
        }
    }
    let truncated = seen().any(|inspection| inspection.truncated) || waiters.len() > SHOWN;
    waiters.truncate(SHOWN);
    Inspection {
        holders: counted.collect(),
        waiters,
        truncated,
        limit: None,
    }
}
