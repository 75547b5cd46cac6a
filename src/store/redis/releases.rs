//! Releases of many holds, in few scripts.

use futures_util::future::join_all;

use super::RedisStore;
use super::batches::{Placed, in_batches, in_order};
use super::many;
use super::pooled::Purpose;
use crate::error::StoreError;
use crate::store::{HoldStatus, LockStore, Release, Released, several};

impl RedisStore {
    /// Releases several holds: those of one server by one script per [`BATCH`](crate::store::BATCH), those that leave a record
    /// one by one.
    pub(super) async fn release_several(
        &self,
        releases: &[Release],
    ) -> Result<Vec<Released>, StoreError> {
        let route = self.inner.router.route(Purpose::Commands);
        let leaves_record = |(_, release): &Placed<&Release>| release.record.is_some();
        let (alone, joined): (Vec<_>, Vec<_>) = (0..).zip(releases).partition(leaves_record);
        let alone = alone
            .into_iter()
            .map(|(place, release)| async move { (place, self.release_alone(release).await) });
        let together = |release: &Release| route.together(&release.hold.key);
        let joined = in_batches(&joined, together, |batch| self.release_batch(batch));
        let (mut answers, alone) = tokio::join!(joined, join_all(alone));
        answers.extend(alone);
        several::known(in_order(answers).collect())
    }

    /// Releases the holds of a batch by one script.
    async fn release_batch(
        &self,
        batch: Vec<&Release>,
    ) -> Result<Vec<Result<Released, StoreError>>, StoreError> {
        let holds = batch.iter().map(|release| &release.hold);
        let call = |publish| Ok(many::release(holds.clone(), publish));
        let (answer, effect) = self.call_counting(&batch[0].hold.key, call).await?;
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
