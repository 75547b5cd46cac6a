//! Renewals, checks and releases of many holds, in few scripts.

use futures_util::future::join_all;

use super::link::Purpose;
use super::{RedisStore, calls, failure, many, reply};
use crate::error::StoreError;
use crate::store::ext::only;
use crate::store::{BATCH, HoldStatus, Release, Released, Renewal, grouped, several, shared_work};

impl RedisStore {
    /// Renews the leases of holds; checks those whose renewal names no lease.
    pub(super) async fn renew_or_check(
        &self,
        renewals: &[Renewal],
    ) -> Result<Vec<HoldStatus>, StoreError> {
        if renewals.is_empty() {
            return self.ping().await.map(|()| Vec::new());
        }
        let router = &self.inner.router;
        let group = |_, renewal: &Renewal| {
            let purpose = purpose_of(renewal);
            (purpose, router.together(purpose, &renewal.hold.key))
        };
        let answers = in_batches(renewals, group, async |batch| {
            let statuses = self.renew_batch(batch).await?;
            Ok(statuses.into_iter().map(Ok).collect())
        });
        // The error of one slot does not stand for the holds of the others.
        several::known(answers.await)
    }

    /// Renews, or checks, the holds of a batch by one script.
    async fn renew_batch(&self, batch: Vec<&Renewal>) -> Result<Vec<HoldStatus>, StoreError> {
        let (router, purpose) = (&self.inner.router, purpose_of(batch[0]));
        let is_marked = purpose == Purpose::Commands && self.inner.acknowledging;
        let (key, call) = (&batch[0].hold.key, calls::renew(&batch, is_marked));
        let mut answered = router.call(purpose, key, &call).await;
        if purpose == Purpose::Renewals
            && (answered.as_ref()).is_err_and(StoreError::is_without_effect)
            && router.lacks_renewals(key)
        {
            // There is no connection for renewals. The server may be at its connection limit, or its password may have been changed,
            // while the other connections are up. The keys may belong to different ones of these: a renewal takes effect in any
            // order with other commands.
            answered = router.call(Purpose::Commands, key, &call).await;
        }
        let (answer, sent) = match answered {
            Err(error) if batch.len() > 1 && failure::is_split(&error) => {
                return self.renew_each(batch).await;
            }
            answered => answered?,
        };
        let statuses = reply::renewed(answer, batch.len())?;
        if statuses.contains(&HoldStatus::Held) {
            sent.acknowledged().await?;
        }
        Ok(statuses)
    }

    /// Renews, or checks, each of these holds by a script of its own, which most often needs one key only.
    async fn renew_each(&self, batch: Vec<&Renewal>) -> Result<Vec<HoldStatus>, StoreError> {
        let each = batch
            .into_iter()
            .map(async |renewal| only(Box::pin(self.renew_batch(vec![renewal])).await?));
        several::of_each(each).await
    }

    /// Asks every server that has locks.
    async fn ping(&self) -> Result<(), StoreError> {
        let servers = self.inner.router.servers().await?;
        let ping = redis::cmd("PING");
        let pings = servers.iter().map(async |(_, node)| {
            let link = node.first(Purpose::Commands);
            link.query(&ping).await
        });
        for answer in join_all(pings).await {
            failure::accepted(answer?)?;
        }
        Ok(())
    }

    /// Releases several holds. A hold that leaves a record is alone in its batch.
    pub(super) async fn release_several(
        &self,
        releases: &[Release],
    ) -> Result<Vec<Released>, StoreError> {
        let group = |place, release: &Release| match release.record {
            Some(_) => Err(place),
            None => {
                let router = &self.inner.router;
                Ok(router.together(Purpose::Commands, &release.hold.key))
            }
        };
        let answers = in_batches(releases, group, |batch| self.release_batch(batch));
        several::known(answers.await)
    }

    /// Releases one hold. Most are released alone, and answered here without a list.
    pub(in super::super) async fn release_alone(
        &self,
        release: &Release,
    ) -> Result<Released, StoreError> {
        let Release { hold, record } = release;
        if record.is_some() && calls::shares(hold.mode) {
            return Err(shared_work());
        }
        let call = |publish| match record {
            None => calls::release(hold, publish),
            Some(record) => calls::release_recording(hold, record, publish),
        };
        let (answer, sent) = self.call_counting(&hold.key, call).await?;
        let released = self.released(hold, &answer)?;
        if released.status == HoldStatus::Held {
            // It is confirmed when enough replicas have acknowledged it.
            sent.acknowledged().await?;
        }
        Ok(released)
    }

    /// Releases the holds of a batch by one script.
    async fn release_batch(
        &self,
        batch: Vec<&Release>,
    ) -> Result<Vec<Result<Released, StoreError>>, StoreError> {
        if let [release] = batch[..] {
            return Ok(vec![self.release_alone(release).await]);
        }
        let holds = batch.iter().map(|release| &release.hold);
        let call = |publish| many::release(holds.clone(), publish);
        let (answer, sent) = self.call_counting(&batch[0].hold.key, call).await?;
        let answers = many::released(&answer, batch.len())?;
        let released: Vec<_> = holds
            .zip(answers)
            .map(|(hold, answer)| self.released(hold, answer))
            .collect();
        let is_held = |released: &Released| released.status == HoldStatus::Held;
        if released.iter().flatten().any(is_held) {
            sent.acknowledged().await?;
        }
        Ok(released)
    }
}

/// A check needs no connection for renewals: nothing ends while it waits.
fn purpose_of(renewal: &Renewal) -> Purpose {
    match renewal.lease {
        Some(_) => Purpose::Renewals,
        None => Purpose::Commands,
    }
}

/// Asks in as few questions as [`BATCH`] and `group` allow: items of the same group may be in one question. Every question
/// is completed: one that fails does not stop the others. The answers are in the order of the items.
async fn in_batches<'a, T, G: Ord, A: Clone, F>(
    items: &'a [T],
    group: impl Fn(usize, &T) -> G,
    ask: impl Fn(Vec<&'a T>) -> F,
) -> Vec<Result<A, StoreError>>
where
    F: Future<Output = Result<Vec<Result<A, StoreError>>, StoreError>>,
{
    let groups = grouped(0..items.len(), |place| group(*place, &items[*place]));
    let batches = groups.values().flat_map(|places| places.chunks(BATCH));
    let answers = batches.map(|places| {
        let answers = ask(places.iter().map(|place| &items[*place]).collect());
        async move {
            let answers = answers.await;
            let answers = answers.unwrap_or_else(|error| vec![Err(error); places.len()]);
            places.iter().zip(answers).collect::<Vec<_>>()
        }
    });
    let mut answers: Vec<_> = join_all(answers).await.into_iter().flatten().collect();
    answers.sort_unstable_by_key(|(place, _)| *place);
    answers.into_iter().map(|(_, answer)| answer).collect()
}
