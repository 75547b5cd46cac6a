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

mod failing;

use failing::{Failing, PAUSE};

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
        if let Some(entry) = self.holds.remove(&live.serial)
            && entry.state != RenewalState::New
        {
            self.queue.remove(&(entry.look, live.serial));
            self.leave_failing(entry.state);
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<LiveHold>> {
        self.holds.values().map(|entry| &entry.live)
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
mod tests;
