//! Partitions of the store that do not answer renewals.

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Batch, Renewed};
use crate::backoff::Backoff;
use crate::error::StoreError;
use crate::hold::Held;
use crate::store::BATCH;
use crate::telemetry::Seldom;

/// The first and the longest pause between two probes of a partition. A pause doubles after each probe, and is never longer than a
/// tenth of the shortest lease in the partition.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// The partitions whose last renewal failed. One batch at a time probes each, with the holds that wait longest first; the others wait
/// for its answer, or for their deadline.
#[derive(Default)]
pub(super) struct Outages {
    partitions: BTreeMap<u16, Outage>,
    /// The first failure, until no partition fails.
    began: Option<Instant>,
    failures: Seldom,
}

struct Outage {
    waiting: VecDeque<Arc<Held>>,
    probe: Instant,
    backoff: Backoff,
    shortest: Duration,
}

impl Outages {
    /// If the partition fails, its holds wait with the others.
    pub(super) fn wait(&mut self, partition: u16, holds: &[Renewed]) -> bool {
        let Some(outage) = self.partitions.get_mut(&partition) else {
            return false;
        };
        for (held, _) in holds {
            outage.add(held);
        }
        true
    }

    /// The store has not answered: no deadline changes, and the partition is probed until it answers.
    pub(super) fn failed(&mut self, batch: &Batch, error: &StoreError) {
        let now = Instant::now();
        let is_new = self.partitions.is_empty();
        let is_first = !self.partitions.contains_key(&batch.partition);
        // The holds of a probe wait already, unless the partition has answered since.
        if is_first || !batch.is_probe {
            let open = batch.holds.iter().filter(|(held, _)| held.is_open(now));
            for (held, _) in open {
                let outage = self.partitions.entry(batch.partition);
                outage.or_insert_with(|| Outage::new(now)).add(held);
            }
        }
        let Some(outage) = self.partitions.get_mut(&batch.partition) else {
            return;
        };
        if is_first {
            outage.probe = now + outage.backoff.next_within(outage.shortest / 10);
        }
        self.began.get_or_insert(now);
        let holds = self
            .partitions
            .values()
            .map(|outage| outage.waiting.len())
            .sum();
        self.warn(error, holds, is_new);
    }

    /// A batch for each partition whose pause is over.
    pub(super) fn probes(&mut self, now: Instant) -> Vec<(u16, Vec<Renewed>)> {
        let mut probes = Vec::new();
        self.partitions.retain(|&partition, outage| {
            if outage.probe > now {
                return true;
            }
            outage.waiting.retain(|held| held.is_open(now));
            let mut holds = Vec::new();
            for _ in 0..outage.waiting.len().min(BATCH) {
                let held = outage.waiting.pop_front().expect("it was counted");
                // A hold whose limit is reached waits for its deadline.
                holds.extend(held.renewal(now).map(|lease| (held.clone(), lease)));
                outage.waiting.push_back(held);
            }
            // The next probe does not wait for the answer to this one, which may hang.
            outage.probe = now + outage.backoff.next_within(outage.shortest / 10);
            if !holds.is_empty() {
                probes.push((partition, holds));
            }
            !outage.waiting.is_empty()
        });
        if self.partitions.is_empty() {
            self.began = None;
        }
        probes
    }

    /// The partition answers. Returns the holds that have waited for that.
    pub(super) fn answered(&mut self, partition: u16, now: Instant) -> Vec<Arc<Held>> {
        let Some(outage) = self.partitions.remove(&partition) else {
            return Vec::new();
        };
        if self.partitions.is_empty()
            && let Some(began) = self.began.take()
        {
            tracing::info!(outage = ?(now - began), "renewals are answered again");
        }
        outage.waiting.into()
    }

    /// The next probe.
    pub(super) fn first(&self) -> Option<Instant> {
        self.partitions.values().map(|outage| outage.probe).min()
    }

    /// Logs the begin of an outage, and what else fails once a minute.
    pub(super) fn warn(&self, error: &StoreError, holds: usize, is_new: bool) {
        if let Some(left_out) = self.failures.due_if(is_new) {
            let error = error as &dyn Error;
            tracing::warn!(error, holds, left_out, "could not renew");
        }
    }
}

impl Outage {
    fn new(now: Instant) -> Self {
        Self {
            waiting: VecDeque::new(),
            probe: now + PAUSE.1,
            backoff: Backoff::new(PAUSE.0, PAUSE.1),
            shortest: Duration::MAX,
        }
    }

    fn add(&mut self, held: &Arc<Held>) {
        self.shortest = self.shortest.min(held.lease.duration());
        self.waiting.push_back(held.clone());
    }
}
