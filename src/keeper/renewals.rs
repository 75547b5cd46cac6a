//! The renewals that are due or under way: a line of holds for each partition of the store.

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Heard, Running};
use crate::backoff::Backoff;
use crate::error::StoreError;
use crate::hold::Held;
use crate::limits::LAST_MOMENT;
use crate::release::Core;
use crate::store::{BATCH, HoldStatus, Renewal, undecided};
use crate::sync::call_outside;
use crate::telemetry::{self, Seldom};

/// How many questions about one partition are under way at a time, unless they hang: the server serves others between them.
const AT_ONCE: usize = 2;

/// The first and the longest pause between two questions in an outage. A pause doubles after each question, and is never longer than
/// a tenth of the shortest lease that waits.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// A hold, and for how long it is renewed.
type Renewed = (Arc<Held>, Duration);

/// The partitions whose holds are being renewed.
#[derive(Default)]
pub(super) struct Renewals {
    lines: BTreeMap<u16, Partition>,
    /// The number of the latest question.
    number: u64,
    /// The first failure, until no partition fails.
    failing_since: Option<Instant>,
    failures: Seldom,
}

/// The holds of one partition. Those of a question that fails go to the end, so that a partition which is down is asked as often for
/// one hold as for thousands, and those that cannot be renewed do not keep others from it.
#[derive(Default)]
struct Partition {
    waiting: VecDeque<Arc<Held>>,
    questions: Vec<Batch>,
    /// From a question that failed until one is answered.
    outage: Option<Outage>,
}

/// One that is under way.
struct Batch {
    number: u64,
    sent: Instant,
    /// They have left it once they are asked about again, because its answer takes too long.
    holds: Vec<Renewed>,
    shortest: Duration,
}

struct Outage {
    backoff: Backoff,
    /// When the next question may be asked. It does not wait for the answer to the one before, which may hang.
    next: Instant,
}

impl Renewals {
    /// A hold is due.
    pub(super) fn push(&mut self, partition: u16, held: Arc<Held>) {
        let line = self.lines.entry(partition).or_default();
        line.waiting.push_back(held);
    }

    /// Asks about those that have a turn.
    pub(super) fn ask(&mut self, core: &Arc<Core>, running: &mut Running, now: Instant) {
        self.give_up(now);
        for (&partition, line) in &mut self.lines {
            while let Some(holds) = line.next_batch(core, now) {
                self.number += 1;
                let number = self.number;
                let asking = ask(core.clone(), holds.clone());
                running.push(Box::pin(async move {
                    Heard::Renewed(partition, number, asking.await)
                }));
                line.questions.push(Batch {
                    number,
                    sent: now,
                    shortest: shortest(holds.iter().map(|(held, _)| held)),
                    holds,
                });
            }
        }
        self.lines
            .retain(|_, line| !line.questions.is_empty() || !line.waiting.is_empty());
        if !self.is_any_failing() {
            self.failing_since = None;
        }
    }

    /// Does not wait for questions that hang. Their answers count whenever they come.
    fn give_up(&mut self, now: Instant) {
        let mut hung = Vec::new();
        for (&partition, line) in &mut self.lines {
            let fails = line.outage.is_some();
            let questions = line.questions.iter_mut();
            let questions = questions.filter(|asked| asked.hangs_at(fails) <= now);
            hung.extend(questions.map(|asked| (partition, std::mem::take(&mut asked.holds))));
        }
        for (partition, holds) in hung {
            self.failed(partition, holds, &undecided());
        }
    }

    /// When to ask or to give up next.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let next = self.lines.values().flat_map(|line| line.next(now));
        next.min()
    }

    /// A question is answered.
    pub(super) fn answered(
        &mut self,
        partition: u16,
        number: u64,
        answer: Result<usize, StoreError>,
    ) {
        let Some(line) = self.lines.get_mut(&partition) else {
            return;
        };
        let mut asked = line
            .questions
            .extract_if(.., |asked| asked.number == number);
        let holds = asked.next().map_or_else(Vec::new, |asked| asked.holds);
        drop(asked);
        let unknown = match answer {
            Ok(unknown) => unknown,
            Err(error) => return self.failed(partition, holds, &error),
        };
        line.outage = None;
        if !self.is_any_failing()
            && let Some(since) = self.failing_since.take()
        {
            call_outside("a subscriber", || {
                tracing::info!(outage = ?since.elapsed(), "renewals are answered again");
            });
        }
        if unknown > 0 {
            self.warn(&undecided(), unknown, false);
        }
    }

    /// No deadline changes, and the partition is asked until it answers.
    fn failed(&mut self, partition: u16, holds: Vec<Renewed>, error: &StoreError) {
        let Some(line) = self.lines.get_mut(&partition).filter(|_| !holds.is_empty()) else {
            return;
        };
        for (held, _) in holds {
            telemetry::not_renewed(&held.route, held.hold.mode, "failed");
            line.waiting.push_back(held);
        }
        let now = Instant::now();
        if line.outage.is_none() {
            line.pause(now);
        }
        let is_new = self.failing_since.is_none();
        self.failing_since.get_or_insert(now);
        let failing = self.lines.values().filter(|line| line.outage.is_some());
        let holds = failing.map(|line| line.waiting.len()).sum();
        self.warn(error, holds, is_new);
    }

    fn is_any_failing(&self) -> bool {
        self.lines.values().any(|line| line.outage.is_some())
    }

    /// Logs the begin of an outage, and what else fails once a minute.
    fn warn(&self, error: &StoreError, holds: usize, is_new: bool) {
        if let Some(left_out) = self.failures.due_if(is_new) {
            let error = error as &dyn Error;
            call_outside("a subscriber", || {
                tracing::warn!(error, holds, left_out, "could not renew");
            });
        }
    }
}

impl Partition {
    /// The holds of the next question, if there is one now.
    fn next_batch(&mut self, core: &Core, now: Instant) -> Option<Vec<Renewed>> {
        let turns = |question: &&Batch| now < question.sent + LAST_MOMENT;
        let may_ask = match &self.outage {
            None => self.questions.iter().filter(turns).count() < AT_ONCE,
            Some(outage) => outage.next <= now,
        };
        if !may_ask || self.waiting.is_empty() {
            return None;
        }
        if self.outage.is_some() {
            self.pause(now);
        }
        let mut holds = Vec::new();
        while holds.len() < BATCH
            && let Some(held) = self.waiting.pop_front()
        {
            match held.renewal(now) {
                Some(lease) => holds.push((held, lease)),
                // It has ended, or its limit is reached: then it waits for its deadline.
                None => place(core, &held, held.deadline()),
            }
        }
        (!holds.is_empty()).then_some(holds)
    }

    /// Begins an outage, or the next pause of one.
    fn pause(&mut self, now: Instant) {
        let limit = shortest(&self.waiting) / 10;
        let outage = self.outage.get_or_insert_with(|| Outage {
            backoff: Backoff::new(PAUSE.0, PAUSE.1),
            next: now,
        });
        outage.next = now + outage.backoff.next_within(limit);
    }

    /// When a question may be asked that has no turn now, and when one hangs.
    fn next(&self, now: Instant) -> impl Iterator<Item = Instant> {
        let questions = self.questions.iter();
        let turns = questions.map(|question| question.sent + LAST_MOMENT);
        let turn = match &self.outage {
            None => turns.filter(|turn| *turn > now).min(),
            Some(outage) => Some(outage.next),
        };
        let waits = self
            .questions
            .iter()
            .filter(|asked| !asked.holds.is_empty());
        let hangs = waits.map(|question| question.hangs_at(self.outage.is_some()));
        turn.filter(|_| !self.waiting.is_empty())
            .into_iter()
            .chain(hangs)
    }
}

impl Batch {
    /// When its holds are asked about again: soon in an outage, in which it may have been lost.
    fn hangs_at(&self, fails: bool) -> Instant {
        let third = self.shortest / 3;
        let patience = if fails { third.min(PAUSE.1) } else { third };
        self.sent + patience.max(LAST_MOMENT)
    }
}

/// The shortest lease.
fn shortest<'a>(holds: impl IntoIterator<Item = &'a Arc<Held>>) -> Duration {
    let leases = holds.into_iter().map(|held| held.lease.duration());
    leases.min().unwrap_or_default()
}

/// Renews holds by one question. Returns about how many the store could not decide.
async fn ask(core: Arc<Core>, holds: Vec<Renewed>) -> Result<usize, StoreError> {
    let renewals = holds.iter();
    let renewals = renewals.map(|(held, lease)| Renewal::new(held.hold.clone(), *lease));
    let questions: Vec<_> = holds.iter().map(|(held, _)| held.question()).collect();
    let sent = Instant::now();
    let statuses = core.store.renew(renewals.collect()).answer().await?;
    let is_unknown = |status: &&HoldStatus| **status == HoldStatus::Unknown;
    let unknown = statuses.iter().filter(is_unknown).count();
    // An answer that decides about no hold counts as no answer.
    if unknown == statuses.len() {
        return Err(undecided());
    }
    let now = Instant::now();
    let answers = questions.into_iter().zip(statuses);
    for ((held, lease), (question, status)) in holds.iter().zip(answers) {
        let (route, mode) = (&held.route, held.hold.mode);
        let overdue = held.overdue(now);
        let is_gone = held.answered(question, status, Some((sent, *lease)));
        match status {
            HoldStatus::Held => {
                telemetry::renewed(route, mode, || overdue);
                let next = next_visit(*lease, overdue);
                place(&core, held, sent + next);
            }
            // Its deadline does not change, and it is renewed again soon.
            HoldStatus::Unknown => {
                telemetry::not_renewed(route, mode, "failed");
                let pause = PAUSE.1.min(held.lease.duration() / 10);
                place(&core, held, now + pause);
            }
            HoldStatus::Gone => {
                if is_gone && core.lose(held, "gone") {
                    telemetry::not_renewed(route, mode, "lost");
                }
            }
        }
    }
    Ok(unknown)
}

/// The next visit of a hold, unless it has ended: from then on it is not visited.
fn place(core: &Core, held: &Arc<Held>, visit: Instant) {
    let mut shard = core.table.shard_of(&held.hold.key);
    if held.was_asked() {
        shard.wheel.place(held, visit.min(held.deadline()));
    }
}

/// A third of the lease after the renewal. Holds that were renewed late together, such as after an outage, are not renewed together ever
/// after.
fn next_visit(lease: Duration, overdue: Duration) -> Duration {
    lease / 3 - overdue.min(lease / 10).mul_f64(fastrand::f64())
}
