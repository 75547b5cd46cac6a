//! Renewals and checks of holds.

use futures_util::future::join_all;

use super::batches::{Placed, in_order, statuses};
use super::pooled::Purpose;
use super::{RedisStore, calls, failure, reply};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::{HoldStatus, Renewal};

impl RedisStore {
    /// Renews the leases of holds; checks those whose renewal names no lease.
    pub(super) async fn renew_or_check(
        &self,
        renewals: &[Renewal],
    ) -> Result<Vec<HoldStatus>, StoreError> {
        if renewals.is_empty() {
            return self.ping().await.map(|()| Vec::new());
        }
        let is_check = |(_, renewal): &Placed<&Renewal>| renewal.lease.is_none();
        let (checks, renewals): (Vec<_>, Vec<_>) = (0..).zip(renewals).partition(is_check);
        let mut statuses = self.look(&checks).await?;
        statuses.extend(self.extend(&renewals).await?);
        Ok(in_order(statuses).collect())
    }

    /// Asks every server that has locks.
    async fn ping(&self) -> Result<(), StoreError> {
        let servers = self.inner.router.servers().await?;
        let ping = redis::cmd("PING");
        let pings = servers
            .iter()
            .map(|(_, connection)| connection.query(&ping));
        for answer in join_all(pings).await {
            if let redis::Value::ServerError(error) = answer? {
                return Err(failure::refusal(error));
            }
        }
        Ok(())
    }

    /// Renews leases, on the connections for renewals.
    async fn extend(
        &self,
        renewals: &[Placed<&Renewal>],
    ) -> Result<Vec<Placed<HoldStatus>>, StoreError> {
        let router = &self.inner.router;
        let renew = |purpose| {
            statuses(
                router.route(purpose),
                renewals,
                calls::renew,
                reply::renewed,
            )
        };
        match renew(Purpose::Renewals).await {
            // There is no connection for renewals. The server may be at its connection limit, while the other connections
            // are up.
            Err(error) if no_connection(&error) && router.is_up() => renew(Purpose::Commands).await,
            renewed => renewed,
        }
    }

    /// Asks which holds the store carries.
    async fn look(
        &self,
        checks: &[Placed<&Renewal>],
    ) -> Result<Vec<Placed<HoldStatus>>, StoreError> {
        let route = self.inner.router.route(Purpose::Commands);
        let acknowledging = self.inner.acknowledging;
        let call =
            |batch: &[&Renewal]| calls::check(batch.iter().map(|check| &check.hold), acknowledging);
        statuses(route, checks, call, reply::statuses).await
    }
}

/// Whether an error means that there is no connection.
fn no_connection(error: &StoreError) -> bool {
    matches!(
        error.kind(),
        StoreErrorKind::Unreachable | StoreErrorKind::Transient
    )
}
