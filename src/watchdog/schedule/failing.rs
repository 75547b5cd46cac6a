//! Partitions of the store that do not answer renewals.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::{Batch, RenewalSchedule, RenewalState};
use crate::backoff::jittered;
use crate::store::BATCH;
use crate::watchdog::LiveHold;

/// The first and the longest pause between two probes of a partition whose renewals fail. A pause doubles after each probe,
/// and is never longer than a tenth of the shortest lease in the partition.
pub(super) const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// A partition whose last renewal failed. One batch at a time probes it, with the holds that wait longest first.
pub(super) struct Failing {
    /// The serials of its `Failed` holds, by their last attempt.
    pub(super) waiting: BTreeMap<u64, u64>,
    pub(super) probe: Instant,
    pause: Duration,
    shortest: Duration,
}

impl RenewalSchedule {
    /// The number of holds whose last renewal failed.
    pub(in super::super) fn failing(&self) -> usize {
        self.failing.values().map(|part| part.waiting.len()).sum()
    }

    pub(in super::super) fn is_failing(&self) -> bool {
        !self.failing.is_empty()
    }

    /// One batch for each failing partition whose pause is over.
    pub(super) fn probe(&mut self, now: Instant, batches: &mut Vec<Batch>) {
        while let Some(&(at, partition)) = self.probes.first()
            && at <= now
        {
            let failing = self.failing.get_mut(&partition);
            let failing = failing.expect("a partition is probed while it fails");
            let mut holds = Vec::new();
            for _ in 0..failing.waiting.len().min(BATCH) {
                let Some((_, serial)) = failing.waiting.pop_first() else {
                    break;
                };
                self.tries += 1;
                failing.waiting.insert(self.tries, serial);
                let entry = self
                    .holds
                    .get_mut(&serial)
                    .expect("a hold that waits is known");
                entry.state = RenewalState::Failed(partition, self.tries);
                // A hold whose limit is reached waits for its deadline.
                if let Some(lease) = entry.live.next_lease(now) {
                    holds.push((entry.live.clone(), lease));
                }
            }
            let pause = failing.pause.min(failing.shortest / 10);
            failing.pause = (failing.pause * 2).min(PAUSE.1);
            // The next probe does not wait for the answer to this one, which may hang.
            self.probes.remove(&(at, partition));
            failing.probe = now + jittered(pause);
            self.probes.insert((failing.probe, partition));
            if !holds.is_empty() {
                batches.push(Batch { partition, holds });
            }
        }
    }

    /// A partition answers again: its failed holds are renewed over some time, because there may be many.
    pub(super) fn recover(&mut self, partition: u16, now: Instant) {
        let Some(failing) = self.failing.remove(&partition) else {
            return;
        };
        self.probes.remove(&(failing.probe, partition));
        for serial in failing.waiting.into_values() {
            let live = &self.holds[&serial].live;
            let left = live.deadline().saturating_duration_since(now);
            let spread = (live.lease.duration() / 10).min(left / 4);
            let look = now + spread.mul_f64(fastrand::f64());
            self.place(serial, look, RenewalState::Scheduled);
        }
    }

    /// A hold waits until its partition answers.
    pub(super) fn fail(&mut self, partition: u16, live: &LiveHold, now: Instant) {
        let state = self.holds[&live.serial].state;
        self.tries += 1;
        let lease = live.lease.duration();
        let failing = self.failing.entry(partition).or_insert_with(|| {
            let probe = now + PAUSE.0.min(lease / 10);
            self.probes.insert((probe, partition));
            Failing {
                waiting: BTreeMap::new(),
                probe,
                pause: 2 * PAUSE.0,
                shortest: lease,
            }
        });
        failing.shortest = failing.shortest.min(lease);
        failing.waiting.insert(self.tries, live.serial);
        let place = RenewalState::Failed(partition, self.tries);
        if let RenewalState::Failed(_, try_before) = state {
            failing.waiting.remove(&try_before);
        }
        self.place(live.serial, live.deadline(), place);
    }

    pub(super) fn leave_failing(&mut self, state: RenewalState) {
        let RenewalState::Failed(partition, place) = state else {
            return;
        };
        let failing = self.failing.get_mut(&partition);
        let failing = failing.expect("a partition with a failed hold fails");
        failing.waiting.remove(&place);
        if failing.waiting.is_empty() {
            self.probes.remove(&(failing.probe, partition));
            self.failing.remove(&partition);
        }
    }
}
