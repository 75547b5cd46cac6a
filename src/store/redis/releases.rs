//! Releases of many holds, in few scripts.

use std::collections::BTreeMap;

use futures_util::future::join_all;

use super::RedisStore;
use super::many;
use super::pooled::Purpose;
use crate::error::StoreError;
use crate::lock::Hold;
use crate::store::{BATCH, HoldStatus, Release, Released, several};

/// A hold, and its index in the question.
type Placed<'a> = (usize, &'a Hold);

/// The answer for the hold at this index.
type Answer = (usize, Result<Released, StoreError>);

impl RedisStore {
    /// Releases several holds: those of one server by one script per [`BATCH`], those that leave a record one by one.
    pub(super) async fn release_several(
        &self,
        releases: &[Release],
    ) -> Result<Vec<Released>, StoreError> {
        let route = self.inner.router.route(Purpose::Commands);
        let mut groups: BTreeMap<u16, Vec<Placed<'_>>> = BTreeMap::new();
        let mut alone = Vec::new();
        for (place, release) in releases.iter().enumerate() {
            let hold = &release.hold;
            match release.record {
                Some(_) => {
                    alone.push(async move { vec![(place, self.release_alone(release).await)] })
                }
                None => groups
                    .entry(route.together(&hold.key))
                    .or_default()
                    .push((place, hold)),
            }
        }
        let batches = groups.values().flat_map(|group| group.chunks(BATCH));
        let batches = batches.map(|batch| self.release_batch(batch));
        // Every call is completed: one that fails does not stop the others.
        let (batches, alone) = tokio::join!(join_all(batches), join_all(alone));
        let mut answers: Vec<Answer> = batches.into_iter().chain(alone).flatten().collect();
        answers.sort_unstable_by_key(|(place, _)| *place);
        several::known(answers.into_iter().map(|(_, answer)| answer).collect())
    }

    /// Releases the holds of a batch by one script. If the script fails, the release of each hold fails.
    async fn release_batch(&self, batch: &[Placed<'_>]) -> Vec<Answer> {
        let answers = self.end_batch(batch).await;
        let answers = answers.unwrap_or_else(|error| vec![Err(error); batch.len()]);
        batch.iter().map(|(place, _)| *place).zip(answers).collect()
    }

    async fn end_batch(
        &self,
        batch: &[Placed<'_>],
    ) -> Result<Vec<Result<Released, StoreError>>, StoreError> {
        let holds = batch.iter().map(|(_, hold)| *hold);
        let call = |publish| Ok(many::release(holds.clone(), publish));
        let (answer, effect) = self.call_counting(&batch[0].1.key, call).await?;
        let answers = many::released(&answer, batch.len())?;
        let released: Vec<_> = holds
            .zip(answers)
            .map(|(hold, answer)| self.released(hold, answer))
            .collect();
        let is_held = |released: &Released| released.status == HoldStatus::Held;
        if released.iter().flatten().any(is_held) {
            effect.counts().await?;
        }
        Ok(released)
    }
}
