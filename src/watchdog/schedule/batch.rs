//! Renewals that are asked for together.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::store::BATCH;
use crate::watchdog::live::{DueRenewal, LiveHold, RenewalState};
use crate::watchdog::moment::Moment;

/// Holds of one partition to renew together, and for how long.
pub(in crate::watchdog) struct Batch {
    pub(in crate::watchdog) partition: u16,
    pub(in crate::watchdog) holds: Vec<(Arc<LiveHold>, Duration)>,
    /// Whether a lease is cut at a limit, and so counts from the time when the batch was composed.
    pub(in crate::watchdog) is_cut: bool,
}

/// The batches that are not answered yet, but for those that probe a partition: the only ones with `Asked` holds. There are few.
#[derive(Default)]
pub(super) struct AskedBatches {
    asked: Vec<AskedBatch<Arc<Batch>>>,
    /// The batch of each partition that the round under way fills.
    open: BTreeMap<u16, AskedBatch<Batch>>,
}

struct AskedBatch<B> {
    batch: B,
    /// Not later than the deadline of any hold that it asks for.
    until: Moment,
}

impl AskedBatches {
    /// Adds a renewal to the round under way. Returns its batch if that is full now.
    pub(super) fn add(
        &mut self,
        partition: u16,
        live: Arc<LiveHold>,
        due: &DueRenewal,
    ) -> Option<Arc<Batch>> {
        let open = self.open.entry(partition).or_insert_with(|| AskedBatch {
            batch: Batch {
                partition,
                holds: Vec::new(),
                is_cut: false,
            },
            until: due.until,
        });
        open.batch.holds.push((live, due.lease));
        open.batch.is_cut |= due.is_cut;
        open.until = open.until.min(due.until);
        if open.batch.holds.len() < BATCH {
            return None;
        }
        let full = self.open.remove(&partition);
        full.map(|full| self.close(full))
    }

    /// Ends the round under way. Returns the batches that are not full.
    pub(super) fn close_all(&mut self) -> Vec<Arc<Batch>> {
        let open = mem::take(&mut self.open);
        open.into_values().map(|open| self.close(open)).collect()
    }

    fn close(&mut self, open: AskedBatch<Batch>) -> Arc<Batch> {
        let AskedBatch { batch, until } = open;
        let batch = Arc::new(batch);
        self.asked.push(AskedBatch {
            batch: batch.clone(),
            until,
        });
        batch
    }

    /// When the first deadline of an `Asked` hold may pass, outside of a round.
    pub(super) fn until(&self) -> Option<Moment> {
        self.asked.iter().map(|asked| asked.until).min()
    }

    /// The `Asked` holds of a batch whose deadline has passed. `None`: that of no batch has.
    pub(super) fn over(&mut self, now: Moment) -> Option<Vec<Arc<LiveHold>>> {
        let mut all = self.asked.iter_mut();
        let asked = all.find(|asked| asked.until <= now)?;
        let holds = asked_holds(&asked.batch);
        let (over, left) =
            holds.partition::<Vec<_>, _>(|live| now >= Moment::from(live.deadline()));
        let deadlines = left.iter().map(|live| live.deadline().into());
        // Without any left, it only waits for its answer.
        asked.until = deadlines.min().unwrap_or(now + Duration::from_secs(3600));
        Some(over.into_iter().cloned().collect())
    }

    /// The batch is answered, or failed.
    pub(super) fn end(&mut self, batch: &Batch) {
        let mut all = self.asked.iter();
        let is_this = |asked: &AskedBatch<_>| std::ptr::eq(Arc::as_ptr(&asked.batch), batch);
        if let Some(place) = all.position(is_this) {
            self.asked.swap_remove(place);
        }
    }

    /// Every `Asked` hold.
    pub(super) fn holds(&self) -> impl Iterator<Item = &Arc<LiveHold>> {
        let asked = self.asked.iter().map(|asked| &*asked.batch);
        let open = self.open.values().map(|open| &open.batch);
        asked.chain(open).flat_map(asked_holds)
    }

    /// Forgets all batches. Returns the `Asked` holds.
    pub(super) fn take_all(&mut self) -> Vec<Arc<LiveHold>> {
        let all = self.holds().cloned().collect();
        *self = Self::default();
        all
    }
}

fn asked_holds(batch: &Batch) -> impl Iterator<Item = &Arc<LiveHold>> {
    let holds = batch.holds.iter().map(|(live, _)| live);
    holds.filter(|live| live.renewal().0 == RenewalState::Asked)
}
