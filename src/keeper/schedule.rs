//! The schedule of renewals.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::live::LiveHold;
use super::serial_map::SerialMap;
use crate::lock::Lease;
use crate::store::{BATCH, HoldStatus};

/// The first and the longest pause between two probes of a partition whose renewals fail. A pause doubles after each probe,
/// and is never longer than a tenth of the shortest lease in the partition.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// How many serials of holds that have ended may stand among those of new ones, beside as many as there are holds.
const SPARE: usize = 64;

/// Holds of one partition to renew together, and for how long.
pub(super) struct Batch {
    pub(super) partition: u16,
    pub(super) holds: Vec<(Arc<LiveHold>, Duration)>,
}

/// Every live hold, by the time of its next look.
///
/// A hold is `New` until the first renewal of any new hold comes near: most holds end before that, and never enter the queue.
/// Then it is `Scheduled` until its renewal is sent, `Asked` until that is answered, and `Failed` from a renewal that failed
/// until one of its partition succeeds. Invariants between calls:
///
/// * `new` names every `New` hold, and `settles` is not later than the first look at any of them.
/// * `queue` has exactly one entry for each other hold in `holds`. That of an `Asked` or `Failed` hold is its deadline.
/// * A partition is in `failing` exactly while it has a `Failed` hold, and then it has one entry in `probes`.
#[derive(Default)]
pub(super) struct RenewalSchedule {
    /// By [`LiveHold::serial`].
    holds: SerialMap<ScheduledHold>,
    /// The serials of the holds that are new, and of some that were.
    new: Vec<u64>,
    /// When the new holds are put into the queue.
    settles: Option<Instant>,
    queue: BTreeSet<(Instant, u64)>,
    failing: BTreeMap<u16, Failing>,
    probes: BTreeSet<(Instant, u16)>,
    /// Orders the holds of a failing partition by their last attempt.
    tries: u64,
    /// The next scheduled wake-up of the task.
    alarm: Option<Instant>,
}

struct ScheduledHold {
    live: Arc<LiveHold>,
    /// The time under which it stands in the queue, or will.
    look: Instant,
    state: RenewalState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RenewalState {
    New,
    Scheduled,
    Asked,
    /// Its partition, and its place among the failed holds there.
    Failed(u16, u64),
}

/// A partition whose last renewal failed. One batch at a time probes it, with the holds that wait longest first.
struct Failing {
    /// The serials of its `Failed` holds, by their last attempt.
    waiting: BTreeMap<u64, u64>,
    probe: Instant,
    pause: Duration,
    shortest: Duration,
}

impl RenewalSchedule {
    /// Adds a new hold. Returns whether the task must wake earlier for it.
    pub(super) fn enter(&mut self, live: &Arc<LiveHold>) -> bool {
        let look = live.first_look();
        let entry = ScheduledHold {
            live: live.clone(),
            look,
            state: RenewalState::New,
        };
        self.holds.insert(live.serial, entry);
        self.new.push(live.serial);
        self.settles = Some(self.settles.map_or(look, |settles| settles.min(look)));
        if self.new.len() > 2 * self.holds.len() + SPARE {
            let holds = &self.holds;
            let is_new = |entry: &ScheduledHold| entry.state == RenewalState::New;
            self.new
                .retain(|serial| holds.get(serial).is_some_and(is_new));
        }
        self.is_before_the_alarm(look)
    }

    /// Puts the new holds into the queue.
    fn settle(&mut self) {
        self.settles = None;
        for serial in mem::take(&mut self.new) {
            if let Some(entry) = self.holds.get_mut(&serial)
                && entry.state == RenewalState::New
            {
                entry.state = RenewalState::Scheduled;
                self.queue.insert((entry.look, serial));
            }
        }
    }

    /// Removes a hold.
    pub(super) fn remove(&mut self, live: &LiveHold) {
        if let Some(entry) = self.holds.remove(&live.serial) {
            if entry.state != RenewalState::New {
                self.queue.remove(&(entry.look, live.serial));
                self.leave_failing(entry.state);
            }
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<LiveHold>> {
        self.holds.values().map(|entry| &entry.live)
    }

    /// The number of holds whose last renewal failed.
    pub(super) fn failing(&self) -> usize {
        self.failing.values().map(|part| part.waiting.len()).sum()
    }

    pub(super) fn is_failing(&self) -> bool {
        !self.failing.is_empty()
    }

    /// The limit of a hold was extended since its last look. Returns whether the task must wake earlier.
    pub(super) fn look_earlier(&mut self, live: &LiveHold, look: Instant) -> bool {
        match self.holds.get(&live.serial) {
            Some(entry)
                if matches!(entry.state, RenewalState::New | RenewalState::Scheduled)
                    && look < entry.look =>
            {
                self.place(live.serial, look, RenewalState::Scheduled);
                self.is_before_the_alarm(look)
            }
            _ => false,
        }
    }

    /// Repeats the renewals of a task that has ended, because they will not be answered.
    pub(super) fn ask_again(&mut self, now: Instant) {
        self.alarm = None;
        let asked = |(serial, entry): (&u64, &ScheduledHold)| {
            (entry.state == RenewalState::Asked).then_some(*serial)
        };
        let asked: Vec<u64> = self.holds.iter().filter_map(asked).collect();
        for serial in asked {
            self.place(serial, now, RenewalState::Scheduled);
        }
    }

    /// Handles every hold that is due: removes those past their deadline, and returns those to renew.
    pub(super) fn due(
        &mut self,
        now: Instant,
        partition: impl Fn(&LiveHold) -> u16,
        lost: &mut Vec<Arc<LiveHold>>,
    ) -> Vec<Batch> {
        if self.settles.is_some_and(|settles| settles <= now) {
            self.settle();
        }
        let mut renewals = BTreeMap::<u16, Vec<_>>::new();
        let mut count = 0;
        while let Some(&(look, serial)) = self.queue.first() {
            let entry = &self.holds[&serial];
            let live = entry.live.clone();
            let deadline = live.deadline();
            // Renewals that are due soon fill the batch, but they do not start a further batch.
            let early = if look < deadline && (1..BATCH).contains(&count) {
                live.lease.duration() / 30
            } else {
                Duration::ZERO
            };
            if look > now + early {
                break;
            }
            if now >= deadline {
                self.remove(&live);
                lost.push(live);
                continue;
            }
            // Without another change, the next look is at the deadline.
            let state = entry.state;
            self.place(serial, deadline, state);
            if let Lease::Renewed(_) = live.lease
                && state == RenewalState::Scheduled
                && let Some(lease) = live.next_lease(now)
            {
                let partition = partition(&live);
                if self.failing.contains_key(&partition) {
                    self.fail(partition, &live, now);
                    continue;
                }
                self.place(serial, deadline, RenewalState::Asked);
                renewals.entry(partition).or_default().push((live, lease));
                count += 1;
            }
        }
        let mut batches = in_batches(renewals);
        self.probe(now, &mut batches);
        batches
    }

    /// One batch for each failing partition whose pause is over.
    fn probe(&mut self, now: Instant, batches: &mut Vec<Batch>) {
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
            failing.probe = now + pause.mul_f64(0.75 + fastrand::f64() / 4.0);
            self.probes.insert((failing.probe, partition));
            if !holds.is_empty() {
                batches.push(Batch { partition, holds });
            }
        }
    }

    /// The store has answered about each hold of a batch that was sent at `sent`. Returns the holds that it does not carry.
    pub(super) fn answered<'a>(
        &mut self,
        batch: &'a Batch,
        sent: Instant,
        now: Instant,
        statuses: &[HoldStatus],
    ) -> Vec<&'a Arc<LiveHold>> {
        let mut lost = Vec::new();
        for ((live, lease), status) in batch.holds.iter().zip(statuses) {
            match status {
                HoldStatus::Held => {
                    live.renewed(sent, *lease);
                    self.move_to(live, live.next_look(sent, *lease));
                }
                HoldStatus::Gone => lost.push(live),
                // Its deadline does not change, and it is renewed again soon; the others of its batch are not affected.
                HoldStatus::Unknown => {
                    let pause = PAUSE.1.min(live.lease.duration() / 10);
                    self.move_to(live, now + pause);
                }
            }
        }
        self.recover(batch.partition, now);
        lost
    }

    /// The store has not answered: no deadline changes, and the partition is probed until it answers.
    pub(super) fn not_answered(&mut self, batch: &Batch, sent: Instant, now: Instant) {
        for (live, _) in &batch.holds {
            // A hold that was renewed since shows that the partition answers.
            if self.holds.contains_key(&live.serial) && live.confirmed() <= sent {
                self.fail(batch.partition, live, now);
            }
        }
    }

    /// A partition answers again: its failed holds are renewed over some time, because there may be many.
    fn recover(&mut self, partition: u16, now: Instant) {
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
    fn fail(&mut self, partition: u16, live: &LiveHold, now: Instant) {
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

    fn leave_failing(&mut self, state: RenewalState) {
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

    /// Moves a hold that is still scheduled, and ends its wait.
    fn move_to(&mut self, live: &LiveHold, look: Instant) {
        if let Some(entry) = self.holds.get(&live.serial) {
            let state = entry.state;
            self.leave_failing(state);
            self.place(
                live.serial,
                look.min(live.deadline()),
                RenewalState::Scheduled,
            );
        }
    }

    fn place(&mut self, serial: u64, look: Instant, state: RenewalState) {
        let entry = self
            .holds
            .get_mut(&serial)
            .expect("only a known hold is moved");
        let was_new = mem::replace(&mut entry.state, state) == RenewalState::New;
        if entry.look != look || was_new {
            self.queue.remove(&(entry.look, serial));
            entry.look = look;
            self.queue.insert((look, serial));
        }
    }

    /// When to look again.
    pub(super) fn set_alarm(&mut self, now: Instant) -> Instant {
        let look = self.queue.first().map(|&(look, _)| look);
        let probe = self.probes.first().map(|&(probe, _)| probe);
        let first = [look, probe, self.settles].into_iter().flatten().min();
        let first = first.unwrap_or_else(|| now + Duration::from_secs(3600));
        // An alarm is kept when its hold has ended: otherwise the next hold would set it again and wake the task, which
        // costs more than one needless wake-up.
        let alarm = match self.alarm {
            Some(alarm) if alarm > now => alarm.min(first),
            _ => first,
        };
        self.alarm = Some(alarm);
        alarm
    }

    fn is_before_the_alarm(&mut self, look: Instant) -> bool {
        if self.alarm.is_some_and(|alarm| look >= alarm) {
            return false;
        }
        // The alarm is kept even if its hold ends: otherwise every short hold would wake the task.
        self.alarm = Some(look);
        true
    }
}

fn in_batches(renewals: BTreeMap<u16, Vec<(Arc<LiveHold>, Duration)>>) -> Vec<Batch> {
    let mut batches = Vec::new();
    for (partition, holds) in renewals {
        let mut holds = holds.into_iter().peekable();
        while holds.peek().is_some() {
            batches.push(Batch {
                partition,
                holds: holds.by_ref().take(BATCH).collect(),
            });
        }
    }
    batches
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
