//! Questions about many holds, in few scripts.

use std::future::Future;

use futures_util::future::join_all;
use redis::Value;

use super::router::PartitionRoute;
use super::script::Call;
use crate::error::StoreError;
use crate::store::{BATCH, HoldStatus, Renewal, grouped};

/// An item, or an answer about it, and the index of the item in the question.
pub(super) type Placed<T> = (usize, T);

/// Asks in as few questions as [`BATCH`] and `together` allow: items with the same number may be in one question. Every
/// question is completed: one that fails does not stop the others.
pub(super) async fn in_batches<'a, T, A, F>(
    items: &[Placed<&'a T>],
    together: impl Fn(&T) -> u16,
    ask: impl Fn(Vec<&'a T>) -> F,
) -> Vec<Placed<Result<A, StoreError>>>
where
    A: Clone,
    F: Future<Output = Result<Vec<Result<A, StoreError>>, StoreError>>,
{
    let groups = grouped(items.iter().copied(), |(_, item)| together(item));
    let batches = groups.values().flat_map(|group| group.chunks(BATCH));
    let answers = batches.map(|batch| {
        let answers = ask(batch.iter().map(|(_, item)| *item).collect());
        async move {
            let answers = answers.await;
            let answers = answers.unwrap_or_else(|error| vec![Err(error); batch.len()]);
            let places = batch.iter().map(|(place, _)| *place);
            places.zip(answers).collect::<Vec<_>>()
        }
    });
    join_all(answers).await.into_iter().flatten().collect()
}

/// Asks for the status of holds, or renews them. `read`: reads the answer about so many holds.
pub(super) async fn statuses<'a>(
    route: PartitionRoute<'_>,
    renewals: &[Placed<&'a Renewal>],
    call: impl Fn(&[&'a Renewal]) -> Call,
    read: impl Fn(&Value, usize) -> Result<Vec<HoldStatus>, StoreError>,
) -> Result<Vec<Placed<HoldStatus>>, StoreError> {
    let read = &read;
    let ask = |batch: Vec<&'a Renewal>| {
        let call = call(&batch);
        async move {
            let (answer, effect) = route.call(&batch[0].hold.key, &call).await?;
            let statuses = read(&answer, batch.len())?;
            if statuses.contains(&HoldStatus::Held) {
                effect.counts().await?;
            }
            Ok(statuses.into_iter().map(Ok).collect())
        }
    };
    let together = |renewal: &Renewal| route.together(&renewal.hold.key);
    let answers = in_batches(renewals, together, ask).await;
    let answers = answers.into_iter();
    answers
        .map(|(place, status)| Ok((place, status?)))
        .collect()
}

/// The answers in the order of the question.
pub(super) fn in_order<A>(mut answers: Vec<Placed<A>>) -> impl Iterator<Item = A> {
    answers.sort_unstable_by_key(|(place, _)| *place);
    answers.into_iter().map(|(_, answer)| answer)
}
