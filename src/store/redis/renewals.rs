//! Renewals and checks of holds.

use futures_util::future::join_all;

use super::pooled::Purpose;
use super::{RedisStore, batches, failure};
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
        let is_check = |renewal: &Renewal| renewal.lease.is_none();
        if !renewals.iter().any(is_check) {
            return self.extend(renewals).await;
        }
        if renewals.iter().all(is_check) {
            return self.look(renewals).await;
        }
        let mut statuses = vec![HoldStatus::Unknown; renewals.len()];
        let places = 0..renewals.len();
        let (checks, extended): (Vec<_>, Vec<_>) =
            places.partition(|&place| is_check(&renewals[place]));
        for (place, status) in checks.iter().zip(self.look(&of(renewals, &checks)).await?) {
            statuses[*place] = status;
        }
        let renewed = self.extend(&of(renewals, &extended)).await?;
        for (place, status) in extended.iter().zip(renewed) {
            statuses[*place] = status;
        }
        Ok(statuses)
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
    async fn extend(&self, renewals: &[Renewal]) -> Result<Vec<HoldStatus>, StoreError> {
        let router = &self.inner.router;
        match batches::renew(router.route(Purpose::Renewals), renewals).await {
            // There is no connection for renewals. The server may be at its connection limit, while the other connections
            // are up.
            Err(error) if no_connection(&error) && router.is_up() => {
                batches::renew(router.route(Purpose::Commands), renewals).await
            }
            renewed => renewed,
        }
    }

    /// Asks which holds the store carries.
    async fn look(&self, checks: &[Renewal]) -> Result<Vec<HoldStatus>, StoreError> {
        let route = self.inner.router.route(Purpose::Commands);
        batches::check(route, checks, self.inner.acknowledging).await
    }
}

/// The `renewals` at `places`.
fn of(renewals: &[Renewal], places: &[usize]) -> Vec<Renewal> {
    let places = places.iter();
    places.map(|&place| renewals[place].clone()).collect()
}

/// Whether an error means that there is no connection.
fn no_connection(error: &StoreError) -> bool {
    matches!(
        error.kind(),
        StoreErrorKind::Unreachable | StoreErrorKind::Transient
    )
}
