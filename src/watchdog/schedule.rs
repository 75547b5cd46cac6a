//! The schedule of renewals.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::live::{Due, LiveHold, Placed, RenewalState};
use super::moment::Moment;
use super::new_holds::NewHolds;
use crate::store::{BATCH, HoldStatus};

mod batch;
mod failing;
mod look_queue;

use batch::AskedBatches;
pub(super) use batch::Batch;
use failing::{Failing, PAUSE};
use look_queue::LookQueue;

/// The parts of a lease within which a renewal may come early. What is due within the first fills a batch that is sent
/// anyway. What is due within the second is sent in the same round: batches that follow each other find this process and the
/// server in the caches, and cost about half.
const FILLS: u32 = 30;
const ROUND: u32 = 100;

/// How many holds most calls of [`RenewalSchedule::due`] visit: so few that a thread which waits for the mutex need not sleep.
const PART: usize = 16;

/// Every live hold, by the time of its next look.
///
/// A hold is `New` until its first renewal comes near: most holds end before that, and never enter the queue. Then it is
/// `Scheduled` until its renewal is sent, `Asked` until that is answered, and `Failed` from a renewal that failed until it is scheduled
/// again, after one of its partition that succeeds. The hold itself says where it stands ([`LiveHold::renewal`]). Invariants between calls:
///
/// * `new` has every `New` hold.
/// * `queue` has every `Scheduled` and every `Failed` hold at its look, and no other; that of a `Failed` hold is its deadline.
/// * Each `Asked` hold is in a batch of `asked`.
/// * A partition is in `failing` exactly while it has a `Failed` hold. It has one entry in `probes` until it answers.
///
/// No call visits more than [`BATCH`] holds, because each acquire and release waits for it; but for `all`, at the end of the
/// client, and `ask_again`, at the end of a runtime.
#[derive(Default)]
pub(super) struct RenewalSchedule {
    new: NewHolds,
    queue: LookQueue,
    asked: AskedBatches,
    failing: BTreeMap<u16, Failing>,
    probes: BTreeSet<(Instant, u16)>,
    /// The next scheduled wake-up of the task.
    alarm: Option<Moment>,
}

/// What is due, from several calls of [`RenewalSchedule::due`].
#[derive(Default)]
pub(super) struct Round {
    /// The batches of each partition, to be sent one after the other.
    pub(super) batches: BTreeMap<u16, Vec<Arc<Batch>>>,
    /// Batches that probe a partition.
    pub(super) probes: Vec<Arc<Batch>>,
    /// The holds past their deadline, which were removed.
    pub(super) lost: Vec<Arc<LiveHold>>,
    /// The number of renewals.
    count: usize,
}

impl RenewalSchedule {
    /// Adds a new hold. Returns whether the task must wake earlier for it.
    pub(super) fn enter(&mut self, live: &Arc<LiveHold>) -> bool {
        let look = self.new.enter(live);
        self.is_before_the_alarm(look)
    }

    /// Removes a hold.
    pub(super) fn remove(&mut self, live: &Arc<LiveHold>) {
        let before = live.stand(RenewalState::Absent);
        self.left(live, before);
    }

    /// Every hold.
    pub(super) fn all(&self) -> Vec<Arc<LiveHold>> {
        let all = self.new.iter().chain(self.queue.holds());
        let all = all.chain(self.asked.holds());
        all.cloned().collect()
    }

    /// The limit of a hold was extended since its last look. Returns whether the task must wake earlier.
    pub(super) fn look_earlier(&mut self, live: &Arc<LiveHold>, look: Moment) -> bool {
        let (state, next) = live.renewal();
        let is_planned = matches!(state, RenewalState::New(..) | RenewalState::Scheduled);
        if !is_planned || look >= next {
            return false;
        }
        self.place(live, RenewalState::Scheduled, Some(look));
        self.is_before_the_alarm(look)
    }

    /// Repeats the renewals of a task that has ended, because they will not be answered.
    pub(super) fn ask_again(&mut self, now: Instant) {
        self.alarm = None;
        for live in self.asked.take_all() {
            self.place(&live, RenewalState::Scheduled, Some(now.into()));
        }
    }

    /// Handles holds that are due, [`PART`] at most, or a batch that is late or probes: removes those past their deadline, and
    /// composes batches of those to renew. Returns whether the round is complete.
    pub(super) fn due(
        &mut self,
        now: Instant,
        partition: impl Fn(&LiveHold) -> u16,
        round: &mut Round,
    ) -> bool {
        let at = Moment::from(now);
        if let Some(new) = self.new.take(at, PART) {
            for live in new {
                let (_, look) = live.stand(RenewalState::Scheduled);
                self.queue.push(look, live);
            }
            return false;
        }
        // While a round is composed, there may be many batches, and each is looked at: the rest waits until its end.
        if round.count == 0
            && let Some(over) = self.asked.over(at)
        {
            over.iter().for_each(|live| self.remove(live));
            round.lost.extend(over);
            return false;
        }
        if self.reschedule(now) || self.probe(now, &mut round.probes) {
            return false;
        }
        for _ in 0..PART {
            if !self.renew_next(now, &partition, round) {
                round.add(self.asked.close_all());
                return true;
            }
        }
        false
    }

    /// The next look, if it is due, or may come early because other renewals are sent anyway.
    fn renew_next(
        &mut self,
        now: Instant,
        partition: impl Fn(&LiveHold) -> u16,
        round: &mut Round,
    ) -> bool {
        let early = match round.count {
            0 => None,
            count if count % BATCH == 0 => Some(ROUND),
            _ => Some(FILLS),
        };
        let next = self.queue.pop_if(|live| live.due(now.into(), early));
        let Some((live, due)) = next else {
            return false;
        };
        match due {
            Due::Over => {
                self.remove(&live);
                round.lost.push(live);
            }
            Due::Waits(at) => self.queue.push(at, live),
            Due::Renews { lease, deadline } => {
                let partition = partition(&live);
                if self.is_down(partition) {
                    self.fail(partition, &live, now);
                } else {
                    round.count += 1;
                    round.add(self.asked.add(partition, (live, lease), deadline));
                }
            }
        }
        true
    }

    /// The store has answered about each hold of a batch that was sent at `sent`. Returns the holds that it does not carry.
    pub(super) fn answered<'a>(
        &mut self,
        batch: &'a Batch,
        sent: Instant,
        now: Instant,
        statuses: &[HoldStatus],
    ) -> Vec<&'a Arc<LiveHold>> {
        self.asked.end(batch);
        let mut lost = Vec::new();
        for ((live, lease), status) in batch.holds.iter().zip(statuses) {
            match status {
                HoldStatus::Held => self.placed(live, live.renewed(sent, *lease)),
                // Its deadline does not change, and it is renewed again soon; the others of its batch are not affected.
                HoldStatus::Unknown => {
                    let look = now + PAUSE.1.min(live.lease().duration() / 10);
                    self.place(live, RenewalState::Scheduled, Some(look.into()));
                }
                HoldStatus::Gone => {
                    self.remove(live);
                    lost.push(live);
                }
            }
        }
        self.recover(batch.partition);
        lost
    }

    /// The store has not answered: no deadline changes, and the partition is probed until it answers.
    pub(super) fn not_answered(&mut self, batch: &Batch, sent: Instant, now: Instant) {
        self.asked.end(batch);
        for (live, _) in &batch.holds {
            // A hold that was renewed since shows that the partition answers.
            let is_known = live.renewal().0 != RenewalState::Absent;
            if is_known && live.confirmed() <= sent.into() {
                self.fail(batch.partition, live, now);
            }
        }
    }

    /// Moves a hold, unless it was removed. Without a time, the next look is at its deadline.
    fn place(&mut self, live: &Arc<LiveHold>, state: RenewalState, look: Option<Moment>) {
        self.placed(live, live.place(state, look));
    }

    /// A hold was moved.
    fn placed(&mut self, live: &Arc<LiveHold>, placed: Placed) {
        if placed.before.0 == RenewalState::Absent {
            return;
        }
        self.left(live, placed.before);
        self.queue.push(placed.look, live.clone());
    }

    /// A hold has left this state, in which it would have been looked at at this time.
    fn left(&mut self, live: &Arc<LiveHold>, (state, at): (RenewalState, Moment)) {
        match state {
            RenewalState::Absent | RenewalState::Asked => return,
            RenewalState::New(slice, place) => return self.new.remove(slice, place),
            RenewalState::Scheduled => {}
            RenewalState::Failed(partition) => self.leave_failing(partition),
        }
        self.queue.remove(at, live);
    }

    /// When to look again.
    pub(super) fn set_alarm(&mut self, now: Instant) -> Instant {
        let look = self.queue.first();
        let probe = self.probes.first().map(|&(probe, _)| probe.into());
        let first = [look, probe, self.new.settles(), self.asked.until()];
        let first = first.into_iter().flatten().min();
        let now = Moment::from(now);
        let first = first.unwrap_or_else(|| now + Duration::from_secs(3600));
        // An alarm is kept when its hold has ended: otherwise the next hold would set it again and wake the task, which
        // costs more than one needless wake-up.
        let alarm = match self.alarm {
            Some(alarm) if alarm > now => alarm.min(first),
            _ => first,
        };
        self.alarm = Some(alarm);
        alarm.into()
    }

    fn is_before_the_alarm(&mut self, look: Moment) -> bool {
        if self.alarm.is_some_and(|alarm| look >= alarm) {
            return false;
        }
        // The alarm is kept even if its hold ends: otherwise every short hold would wake the task.
        self.alarm = Some(look);
        true
    }
}

impl Round {
    fn add(&mut self, batches: impl IntoIterator<Item = Arc<Batch>>) {
        for batch in batches {
            let batches = self.batches.entry(batch.partition).or_default();
            batches.push(batch);
        }
    }
}

#[cfg(test)]
mod tests;
