//! Partitions of the store that do not answer renewals.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Batch, PART, RenewalSchedule, RenewalState};
use crate::backoff::Backoff;
use crate::store::BATCH;
use crate::watchdog::LiveHold;

/// The first and the longest pause between two probes of a partition whose renewals fail. A pause doubles after each probe,
/// and is never longer than a tenth of the shortest lease in the partition.
pub(super) const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// A partition whose last renewal failed, or that answers again and has holds that are not scheduled yet. One batch at a time probes
/// it while it fails, with the holds that wait longest first.
pub(super) struct Failing {
    /// Its `Failed` holds, by their last attempt. Holds that have left are passed over.
    pub(super) waiting: VecDeque<Arc<LiveHold>>,
    /// The number of its `Failed` holds.
    pub(super) holds: usize,
    /// The next probe. `None`: its last renewal was answered, and its holds are scheduled again.
    pub(super) probe: Option<Instant>,
    backoff: Backoff,
    shortest: Duration,
}

impl RenewalSchedule {
    /// The number of holds that wait until their partition answers.
    pub(in super::super) fn failing(&self) -> usize {
        let failing = self.failing.values();
        let failing = failing.filter(|part| part.probe.is_some());
        failing.map(|part| part.holds).sum()
    }

    pub(in super::super) fn is_failing(&self) -> bool {
        !self.probes.is_empty()
    }

    /// Whether the last renewal of the partition failed.
    pub(super) fn is_down(&self, partition: u16) -> bool {
        let failing = self.failing.get(&partition);
        failing.is_some_and(|failing| failing.probe.is_some())
    }

    /// Composes a batch for a failing partition whose pause is over. Returns whether there is such a partition.
    pub(super) fn probe(&mut self, now: Instant, probes: &mut Vec<Arc<Batch>>) -> bool {
        let Some(&(at, partition)) = self.probes.first().filter(|(at, _)| *at <= now) else {
            return false;
        };
        let failing = self.failing.get_mut(&partition);
        let failing = failing.expect("a partition is probed while it fails");
        let mut holds = Vec::new();
        let mut tried = 0;
        for _ in 0..failing.waiting.len().min(BATCH) {
            let live = failing.waiting.pop_front().expect("it was counted");
            if live.renewal().0 != RenewalState::Failed(partition) {
                continue;
            }
            // A hold whose limit is reached waits for its deadline.
            if let Some(lease) = live.next_lease(now.into()) {
                holds.push((live.clone(), lease));
            }
            failing.waiting.push_back(live);
            tried += 1;
        }
        if tried == 0 {
            // They have all left: the next call passes over more, or finds one.
            return true;
        }
        // The next probe does not wait for the answer to this one, which may hang.
        self.probes.remove(&(at, partition));
        let next = now + failing.backoff.next_within(failing.shortest / 10);
        failing.probe = Some(next);
        self.probes.insert((next, partition));
        if !holds.is_empty() {
            probes.push(Arc::new(Batch { partition, holds }));
        }
        true
    }

    /// A partition answers again.
    pub(super) fn recover(&mut self, partition: u16) {
        let failing = self.failing.get_mut(&partition);
        if let Some(probe) = failing.and_then(|failing| failing.probe.take()) {
            self.probes.remove(&(probe, partition));
        }
    }

    /// Whether failed holds wait to be scheduled again.
    pub(in super::super) fn is_recovering(&self) -> bool {
        self.probes.len() < self.failing.len()
    }

    /// Schedules failed holds of a partition that answers again: they are renewed over some time, because there may be many. Returns
    /// whether there is such a partition.
    pub(super) fn reschedule(&mut self, now: Instant) -> bool {
        let mut parts = self.failing.iter_mut();
        let Some((&partition, failing)) = parts.find(|(_, part)| part.probe.is_none()) else {
            return false;
        };
        let some = failing.waiting.len().min(PART);
        // The last one that leaves ends the outage.
        for live in failing.waiting.drain(..some).collect::<Vec<_>>() {
            if live.renewal().0 == RenewalState::Failed(partition) {
                let left = live.deadline().saturating_duration_since(now);
                let spread = (live.lease().duration() / 10).min(left / 4);
                let look = now + spread.mul_f64(fastrand::f64());
                self.place(&live, RenewalState::Scheduled, Some(look.into()));
            }
        }
        true
    }

    /// A hold waits until its partition answers.
    pub(super) fn fail(&mut self, partition: u16, live: &Arc<LiveHold>, now: Instant) {
        let lease = live.lease().duration();
        let failing = self.failing.entry(partition).or_insert_with(|| Failing {
            waiting: VecDeque::new(),
            holds: 0,
            probe: None,
            backoff: Backoff::new(PAUSE.0, PAUSE.1),
            shortest: lease,
        });
        if failing.probe.is_none() {
            failing.backoff.reset();
            let first = now + failing.backoff.next_within(lease / 10);
            failing.probe = Some(first);
            self.probes.insert((first, partition));
        }
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
            self.recover(partition);
            self.failing.remove(&partition);
        }
    }
}
