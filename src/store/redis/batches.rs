//! Renewals and checks of many holds, in few scripts.

use futures_util::future::join_all;

use super::RedisStore;
use super::link::Purpose;
use super::protocol::{calls, failure, reply};
use crate::error::StoreError;
use crate::store::{BATCH, HoldStatus, Renewal, grouped, several};

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
        // Those with the same number may be in one script.
        let batches = grouped(0..renewals.len(), |place| {
            let (key, purpose) = (&renewals[*place].hold.key, purpose_of(&renewals[*place]));
            (purpose, router.together(purpose, key))
        });
        let batches = batches.values().flat_map(|places| places.chunks(BATCH));
        let asking = batches.map(async |places| {
            let batch = places.iter().map(|place| &renewals[*place]).collect();
            let statuses = match self.renew_batch(batch).await {
                Ok(statuses) => statuses.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error); places.len()],
            };
            places.iter().zip(statuses).collect::<Vec<_>>()
        });
        let mut statuses: Vec<_> = join_all(asking).await.into_iter().flatten().collect();
        statuses.sort_unstable_by_key(|(place, _)| *place);
        // The error of one slot does not stand for the holds of the others.
        several::known(statuses.into_iter().map(|(_, status)| status).collect())
    }

    /// Renews, or checks, the holds of a batch by one script.
    async fn renew_batch(&self, batch: Vec<&Renewal>) -> Result<Vec<HoldStatus>, StoreError> {
        let (router, purpose) = (&self.inner.router, purpose_of(batch[0]));
        let is_marked = purpose == Purpose::Commands && self.inner.acknowledging;
        let (key, call) = (&batch[0].hold.key, |_| calls::renew(&batch, is_marked));
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
            .map(async |renewal| Ok(Box::pin(self.renew_batch(vec![renewal])).await?[0]));
        several::known(join_all(each).await)
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
}

/// A check needs no connection for renewals: nothing ends while it waits.
fn purpose_of(renewal: &Renewal) -> Purpose {
    match renewal.lease {
        Some(_) => Purpose::Renewals,
        None => Purpose::Commands,
    }
}
