//! The schedule of renewals.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::live::{Due, LiveHold, RenewalState};
use super::moment::Moment;
use super::new_holds::NewHolds;
use crate::store::{BATCH, HoldStatus};

mod batch;
mod failing;
mod look_queue;

pub(super) use batch::Batch;
use batch::{AskedBatches, in_batches};
use failing::{Failing, PAUSE};
use look_queue::{Look, LookQueue};

/// The parts of a lease within which a renewal may come early. What is due within the first fills a batch that is sent
/// anyway. What is due within the second is sent in the same round: batches that follow each other find this process and the
/// server in the caches, and cost about half.
const FILLS: u32 = 30;
const ROUND: u32 = 100;

/// How many entries of holds that have left may stand in the queue, beside as many as there are holds in it.
const SPARE: usize = 64;

/// Every live hold, by the time of its next look.
///
/// A hold is `New` until the first renewal of any new hold comes near: most holds end before that, and never enter the queue.
/// Then it is `Scheduled` until its renewal is sent, `Asked` until that is answered, and `Failed` from a renewal that failed
/// until one of its partition succeeds. The hold itself says where it stands ([`LiveHold::renewal`]). Invariants between calls:
///
/// * `new` has every `New` hold.
/// * `queue` has an entry for each `Scheduled` and each `Failed` hold, at its look; that of a `Failed` hold is its deadline.
///   `queued` is the number of these holds. Other entries are passed over when their time comes.
/// * Each `Asked` hold is in a batch of `asked`.
/// * A partition is in `failing` exactly while it has a `Failed` hold, and then it has one entry in `probes`.
#[derive(Default)]
pub(super) struct RenewalSchedule {
    new: NewHolds,
    queue: LookQueue,
    queued: usize,
    asked: AskedBatches,
    failing: BTreeMap<u16, Failing>,
    probes: BTreeSet<(Instant, u16)>,
    /// The next scheduled wake-up of the task.
    alarm: Option<Moment>,
}

impl RenewalSchedule {
    /// Adds a new hold. Returns whether the task must wake earlier for it.
    pub(super) fn enter(&mut self, live: &Arc<LiveHold>) -> bool {
        let look = self.new.enter(live);
        self.is_before_the_alarm(look)
    }

    /// Puts the new holds into the queue.
    fn settle(&mut self) {
        let new = self.new.take().into_iter();
        let mut looks: Vec<_> = new.map(|live| (live.renewal().1, live)).collect();
        looks.sort_by_key(|(look, _)| *look);
        for (look, live) in looks {
            self.place(&live, RenewalState::Scheduled, Some(look));
        }
    }

    /// Removes a hold.
    pub(super) fn remove(&mut self, live: &LiveHold) {
        let before = live.stand(RenewalState::Absent);
        if let RenewalState::New(place) = before {
            self.new.remove(place);
        }
        self.left(before);
    }

    /// Every hold.
    pub(super) fn all(&self) -> Vec<Arc<LiveHold>> {
        let queued = self.queue.iter().filter(|entry| entry.is_valid());
        let queued = queued.map(|entry| &entry.live);
        let all = self.new.iter().chain(queued).chain(self.asked.holds());
        // A hold may have two entries with the same time.
        let mut seen = HashSet::new();
        all.filter(|live| seen.insert(Arc::as_ptr(live)))
            .cloned()
            .collect()
    }

    /// The limit of a hold was extended since its last look. Returns whether the task must wake earlier.
    pub(super) fn look_earlier(&mut self, live: &Arc<LiveHold>, look: Moment) -> bool {
        let (state, next) = live.renewal();
        match state {
            RenewalState::New(place) if look < next => self.new.remove(place),
            RenewalState::Scheduled if look < next => {}
            _ => return false,
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

    /// Handles every hold that is due: removes those past their deadline, and returns those to renew: batches of one partition
    /// together, to be sent one after the other.
    pub(super) fn due(
        &mut self,
        now: Instant,
        partition: impl Fn(&LiveHold) -> u16,
        lost: &mut Vec<Arc<LiveHold>>,
    ) -> Vec<Vec<Arc<Batch>>> {
        let at = Moment::from(now);
        if self.new.settles().is_some_and(|settles| settles <= at) {
            self.settle();
        }
        for live in self.asked.over(at) {
            self.remove(&live);
            lost.push(live);
        }
        let mut renewals = BTreeMap::<u16, Vec<_>>::new();
        let mut count = 0;
        while let Some(Look { at: look, live }) = self.next(at, count) {
            match live.due(look, at) {
                Due::Elsewhere => {}
                Due::Over => {
                    self.remove(&live);
                    lost.push(live);
                }
                Due::Waits(at) => self.queue.push(Look { at, live }),
                Due::Renews(lease, deadline) => {
                    self.left(RenewalState::Scheduled);
                    let partition = partition(&live);
                    if self.failing.contains_key(&partition) {
                        self.fail(partition, &live, now);
                        continue;
                    }
                    let renewals = renewals.entry(partition).or_default();
                    renewals.push((live, lease, deadline));
                    count += 1;
                }
            }
        }
        let mut batches = in_batches(renewals, &mut self.asked);
        self.probe(now, &mut batches);
        batches
    }

    /// The next entry, if it is due, or may come early because `count` renewals are sent anyway.
    fn next(&mut self, now: Moment, count: usize) -> Option<Look> {
        let first = self.queue.first()?;
        if first.at > now {
            let part = match count {
                0 => return None,
                count if count % BATCH == 0 => ROUND,
                _ => FILLS,
            };
            // A hold whose renewals have ended waits for its deadline.
            let is_renewal = first.at < first.live.deadline().into();
            let early = first.live.lease().duration() / part;
            if !is_renewal || first.at > now + early {
                return None;
            }
        }
        self.queue.pop()
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
            let look = match status {
                HoldStatus::Held => live.renewed(sent, *lease),
                // Its deadline does not change, and it is renewed again soon; the others of its batch are not affected.
                HoldStatus::Unknown => {
                    Moment::from(now) + PAUSE.1.min(live.lease().duration() / 10)
                }
                HoldStatus::Gone => {
                    self.remove(live);
                    lost.push(live);
                    continue;
                }
            };
            self.place(live, RenewalState::Scheduled, Some(look));
        }
        self.recover(batch.partition, now);
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
        let (before, at) = live.place(state, look);
        if before == RenewalState::Absent {
            return;
        }
        self.left(before);
        self.queued += 1;
        self.queue.push(Look {
            at,
            live: live.clone(),
        });
    }

    /// A hold has left this state.
    fn left(&mut self, state: RenewalState) {
        match state {
            RenewalState::Absent | RenewalState::New(_) | RenewalState::Asked => return,
            RenewalState::Scheduled => {}
            RenewalState::Failed(partition) => self.leave_failing(partition),
        }
        self.queued -= 1;
        if self.queue.len() > 2 * self.queued + SPARE {
            self.queue.tidy();
        }
    }

    /// When to look again.
    pub(super) fn set_alarm(&mut self, now: Instant) -> Instant {
        let look = self.queue.first().map(|entry| entry.at);
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

#[cfg(test)]
mod tests;
