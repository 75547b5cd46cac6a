//! Renewals and checks of many holds, in few scripts.

use std::collections::BTreeMap;

use futures_util::future::join_all;

use super::router::PartitionRoute;
use super::script::Call;
use super::{calls, reply};
use crate::error::StoreError;
use crate::lock::LockKey;
use crate::store::{BATCH, HoldStatus, Renewal};

/// Renews leases.
pub(super) async fn renew(
    route: PartitionRoute<'_>,
    renewals: &[Renewal],
) -> Result<Vec<HoldStatus>, StoreError> {
    call_in_batches(
        route,
        renewals,
        |renewal| &renewal.hold.key,
        |batch| calls::renew(batch.iter().copied()),
    )
    .await
}

/// Asks which holds the store carries. With `acknowledge`, each batch writes something, so that replicas have a
/// change to acknowledge.
pub(super) async fn check(
    route: PartitionRoute<'_>,
    checks: &[Renewal],
    acknowledge: bool,
) -> Result<Vec<HoldStatus>, StoreError> {
    call_in_batches(
        route,
        checks,
        |check| &check.hold.key,
        |batch| calls::check(batch.iter().map(|check| &check.hold), acknowledge),
    )
    .await
}

/// Asks one question about many holds, in as few scripts as the servers and [`BATCH`] allow.
async fn call_in_batches<'a, T>(
    route: PartitionRoute<'a>,
    items: &'a [T],
    key: impl Fn(&T) -> &LockKey,
    call: impl Fn(&[&'a T]) -> Call,
) -> Result<Vec<HoldStatus>, StoreError> {
    let mut groups: BTreeMap<u16, Vec<_>> = BTreeMap::new();
    for (place, item) in items.iter().enumerate() {
        let group = groups.entry(route.together(key(item)));
        group.or_default().push((place, item));
    }
    let batches = groups.values().flat_map(|group| group.chunks(BATCH));
    let answers = batches.map(|batch| {
        let items: Vec<&T> = batch.iter().map(|&(_, item)| item).collect();
        let (key, call) = (key(items[0]), call(&items));
        async move {
            let (answer, effect) = route.call(key, &call).await?;
            let standings = reply::standings(&answer, batch.len())?;
            if standings.contains(&HoldStatus::Held) {
                effect.counts().await?;
            }
            Ok((batch, standings))
        }
    });
    let mut standings = vec![HoldStatus::Gone; items.len()];
    // Every batch is completed: one that fails does not stop the others.
    for answer in join_all(answers).await {
        let (batch, answers) = answer?;
        for ((place, _), standing) in batch.iter().zip(answers) {
            standings[*place] = standing;
        }
    }
    Ok(standings)
}
