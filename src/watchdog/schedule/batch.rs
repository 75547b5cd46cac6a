//! Renewals that are asked for together.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::store::BATCH;
use crate::watchdog::live::{LiveHold, RenewalState};
use crate::watchdog::moment::Moment;

/// Holds of one partition to renew together, and for how long.
pub(in crate::watchdog) struct Batch {
    pub(in crate::watchdog) partition: u16,
    pub(in crate::watchdog) holds: Vec<(Arc<LiveHold>, Duration)>,
}

impl Batch {
    /// Whether a lease is cut at a limit, and so counts from the time when the batch was composed.
    pub(in crate::watchdog) fn is_cut(&self) -> bool {
        let mut holds = self.holds.iter();
        holds.any(|(live, lease)| *lease < live.lease().duration())
    }
}

/// The batches that are not answered yet, but for those that probe a partition: the only ones with `Asked` holds. There are few.
#[derive(Default)]
pub(super) struct AskedBatches {
    asked: Vec<(Arc<Batch>, Until)>,
    /// The batch of each partition that the round under way fills.
    open: BTreeMap<u16, (Batch, Until)>,
}

/// Not later than the deadline of any hold that a batch asks for.
type Until = Moment;

impl AskedBatches {
    /// Adds a renewal to the round under way. Returns its batch if that is full now.
    pub(super) fn add(
        &mut self,
        partition: u16,
        renewal: (Arc<LiveHold>, Duration),
        deadline: Moment,
    ) -> Option<Arc<Batch>> {
        let (batch, until) = self.open.entry(partition).or_insert_with(|| {
            let holds = Vec::new();
            (Batch { partition, holds }, deadline)
        });
        batch.holds.push(renewal);
        *until = deadline.min(*until);
        if batch.holds.len() < BATCH {
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

    fn close(&mut self, (batch, until): (Batch, Until)) -> Arc<Batch> {
        let batch = Arc::new(batch);
        self.asked.push((batch.clone(), until));
        batch
    }

    /// When the first deadline of an `Asked` hold may pass, outside of a round.
    pub(super) fn until(&self) -> Option<Moment> {
        self.asked.iter().map(|(_, until)| *until).min()
    }

    /// The `Asked` holds of a batch whose deadline has passed. `None`: that of no batch has.
    pub(super) fn over(&mut self, now: Moment) -> Option<Vec<Arc<LiveHold>>> {
        let mut all = self.asked.iter_mut();
        let (batch, until) = all.find(|(_, until)| *until <= now)?;
        let holds = asked_holds(batch);
        let (over, left) =
            holds.partition::<Vec<_>, _>(|live| now >= Moment::from(live.deadline()));
        let deadlines = left.iter().map(|live| live.deadline().into());
        // Without any left, it only waits for its answer.
        *until = deadlines.min().unwrap_or(now + Duration::from_secs(3600));
        Some(over.into_iter().cloned().collect())
    }

    /// The batch is answered, or failed.
    pub(super) fn end(&mut self, batch: &Batch) {
        let mut all = self.asked.iter();
        if let Some(place) = all.position(|(asked, _)| std::ptr::eq(&**asked, batch)) {
            self.asked.swap_remove(place);
        }
    }

    /// Every `Asked` hold.
    pub(super) fn holds(&self) -> impl Iterator<Item = &Arc<LiveHold>> {
        let asked = self.asked.iter().map(|(batch, _)| &**batch);
        let open = self.open.values().map(|(batch, _)| batch);
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
