//! Partitions of the store that do not answer renewals.

use std::collections::VecDeque;
use std::sync::Arc;
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
    /// Its `Failed` holds, by their last attempt. Holds that have left are passed over.
    pub(super) waiting: VecDeque<Arc<LiveHold>>,
    /// The number of its `Failed` holds.
    pub(super) holds: usize,
    pub(super) probe: Instant,
    pause: Duration,
    shortest: Duration,
}

impl RenewalSchedule {
    /// The number of holds whose last renewal failed.
    pub(in super::super) fn failing(&self) -> usize {
        self.failing.values().map(|part| part.holds).sum()
    }

    pub(in super::super) fn is_failing(&self) -> bool {
        !self.failing.is_empty()
    }

    /// One batch for each failing partition whose pause is over.
    pub(super) fn probe(&mut self, now: Instant, batches: &mut Vec<Vec<Arc<Batch>>>) {
        while let Some(&(at, partition)) = self.probes.first()
            && at <= now
        {
            let failing = self.failing.get_mut(&partition);
            let failing = failing.expect("a partition is probed while it fails");
            let mut holds = Vec::new();
            let mut tried = 0;
            for _ in 0..failing.waiting.len() {
                let Some(live) = failing.waiting.pop_front() else {
                    break;
                };
                if live.renewal().0 != RenewalState::Failed(partition) {
                    continue;
                }
                // A hold whose limit is reached waits for its deadline.
                if let Some(lease) = live.next_lease(now.into()) {
                    holds.push((live.clone(), lease));
                }
                failing.waiting.push_back(live);
                tried += 1;
                if tried == BATCH {
                    break;
                }
            }
            let pause = failing.pause.min(failing.shortest / 10);
            failing.pause = (failing.pause * 2).min(PAUSE.1);
            // The next probe does not wait for the answer to this one, which may hang.
            self.probes.remove(&(at, partition));
            failing.probe = now + jittered(pause);
            self.probes.insert((failing.probe, partition));
            if !holds.is_empty() {
                batches.push(vec![Arc::new(Batch { partition, holds })]);
            }
        }
    }

    /// A partition answers again: its failed holds are renewed over some time, because there may be many.
    pub(super) fn recover(&mut self, partition: u16, now: Instant) {
        let Some(failing) = self.failing.get_mut(&partition) else {
            return;
        };
        // The last one that leaves ends the outage.
        for live in std::mem::take(&mut failing.waiting) {
            if live.renewal().0 == RenewalState::Failed(partition) {
                let left = live.deadline().saturating_duration_since(now);
                let spread = (live.lease().duration() / 10).min(left / 4);
                let look = now + spread.mul_f64(fastrand::f64());
                self.place(&live, RenewalState::Scheduled, Some(look.into()));
            }
        }
    }

    /// A hold waits until its partition answers.
    pub(super) fn fail(&mut self, partition: u16, live: &Arc<LiveHold>, now: Instant) {
        let lease = live.lease().duration();
        let failing = self.failing.entry(partition).or_insert_with(|| {
            let probe = now + PAUSE.0.min(lease / 10);
            self.probes.insert((probe, partition));
            Failing {
                waiting: VecDeque::new(),
                holds: 0,
                probe,
                pause: 2 * PAUSE.0,
                shortest: lease,
            }
        });
        failing.shortest = failing.shortest.min(lease);
        let state = RenewalState::Failed(partition);
        if live.renewal().0 != state {
            failing.holds += 1;
            failing.waiting.push_back(live.clone());
            self.place(live, state, None);
        }
    }

    pub(super) fn leave_failing(&mut self, partition: u16) {
        let failing = self.failing.get_mut(&partition);
        let failing = failing.expect("a partition with a failed hold fails");
        failing.holds -= 1;
        if failing.holds == 0 {
            self.probes.remove(&(failing.probe, partition));
            self.failing.remove(&partition);
        }
    }
}
