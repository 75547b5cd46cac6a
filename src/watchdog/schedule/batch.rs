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
pub(super) struct AskedBatches(Vec<AskedBatch>);

struct AskedBatch {
    batch: Arc<Batch>,
    /// Not later than the deadline of any hold that it asks for.
    until: Moment,
}

impl AskedBatches {
    /// When the first deadline of an `Asked` hold may pass.
    pub(super) fn until(&self) -> Option<Moment> {
        self.0.iter().map(|asked| asked.until).min()
    }

    /// The `Asked` holds whose deadline has passed.
    pub(super) fn over(&mut self, now: Moment) -> Vec<Arc<LiveHold>> {
        let mut over = Vec::new();
        for asked in self.0.iter_mut().filter(|asked| asked.until <= now) {
            let holds = asked_holds(&asked.batch);
            let (past, left) =
                holds.partition::<Vec<_>, _>(|live| now >= Moment::from(live.deadline()));
            let deadlines = left.iter().map(|live| live.deadline().into());
            // Without any left, it only waits for its answer.
            asked.until = deadlines.min().unwrap_or(now + Duration::from_secs(3600));
            over.extend(past.into_iter().cloned());
        }
        over
    }

    /// The batch is answered, or failed.
    pub(super) fn end(&mut self, batch: &Batch) {
        let mut all = self.0.iter();
        let is_this = |asked: &AskedBatch| std::ptr::eq(&*asked.batch, batch);
        if let Some(place) = all.position(is_this) {
            self.0.swap_remove(place);
        }
    }

    /// Every `Asked` hold.
    pub(super) fn holds(&self) -> impl Iterator<Item = &Arc<LiveHold>> {
        self.0.iter().flat_map(|asked| asked_holds(&asked.batch))
    }

    /// Forgets all batches. Returns the `Asked` holds.
    pub(super) fn take_all(&mut self) -> Vec<Arc<LiveHold>> {
        let all = self.holds().cloned().collect();
        mem::take(&mut self.0);
        all
    }
}

fn asked_holds(batch: &Batch) -> impl Iterator<Item = &Arc<LiveHold>> {
    let holds = batch.holds.iter().map(|(live, _)| live);
    holds.filter(|live| live.renewal().0 == RenewalState::Asked)
}

/// A renewal: the hold, its lease, and its deadline.
type Wanted = (Arc<LiveHold>, Duration, Moment);

/// The renewals of each partition, in batches.
pub(super) fn in_batches(
    renewals: BTreeMap<u16, Vec<Wanted>>,
    asked: &mut AskedBatches,
) -> Vec<Vec<Arc<Batch>>> {
    let batches = renewals.into_iter().map(|(partition, wanted)| {
        let batches = wanted.chunks(BATCH).map(|wanted| {
            let holds = wanted.iter().map(|(live, lease, _)| (live.clone(), *lease));
            let holds = holds.collect();
            let batch = Arc::new(Batch { partition, holds });
            let deadlines = wanted.iter().map(|(.., deadline)| *deadline);
            asked.0.push(AskedBatch {
                batch: batch.clone(),
                until: deadlines.min().expect("a chunk is not empty"),
            });
            batch
        });
        batches.collect()
    });
    batches.collect()
}
