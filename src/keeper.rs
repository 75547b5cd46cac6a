//! The keeper: one task of a client, which renews its holds at a third of their lease, asks the store whether it carries those whose
//! shares have ended, releases those whose minimum is over, and finds those that are lost.
//!
//! It has no timer for a hold: the [wheel](crate::table) of each shard says which are due.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::error::StoreError;
use crate::hold::{Due, Held, Question};
use crate::release::{Agenda, Core};
use crate::store::{BATCH, HoldStatus, Renewal, undecided};
use crate::table::SHARDS;
use crate::telemetry;

mod checks;
mod outage;

use checks::Checks;
use outage::Outages;

/// How many holds are visited under the mutex of a shard at a time.
const PART: usize = 64;

/// After how many losses the thread is given to others.
const LOSSES: usize = 256;

/// How many batches of one partition are under way at a time, of those that are due together: the server serves others between them.
const AT_ONCE: usize = 2;

/// A hold, and for how long it is renewed.
type Renewed = (Arc<Held>, Duration);

/// Holds of one partition.
struct Batch {
    partition: u16,
    holds: Vec<Renewed>,
    /// They wait for the end of an outage.
    is_probe: bool,
}

/// What the task hears.
enum Heard {
    Renewed {
        batch: Batch,
        sent: Instant,
        questions: Vec<Question>,
        answer: Result<Vec<HoldStatus>, StoreError>,
    },
    /// The checks of a partition are done.
    Checked(u16),
}

type Running = FuturesUnordered<BoxFuture<'static, Heard>>;

/// The state of the task alone.
#[derive(Default)]
struct Keeper {
    outages: Outages,
    /// The checks that wait for a question of their partition that is under way, and since when that is.
    checks: BTreeMap<u16, Checks>,
}

/// Keeps the holds of a client until it ends. The task does not keep the client alive.
pub(crate) async fn keep(core: Weak<Core>) {
    let Some((agenda, stop)) = core
        .upgrade()
        .map(|core| (core.agenda.clone(), core.spawner.stop.clone()))
    else {
        return;
    };
    let mut keeper = Keeper::default();
    let mut running = Running::new();
    loop {
        let Some(alarm) = keeper.round(&core, &agenda, &mut running).await else {
            return;
        };
        tokio::select! {
            biased; // without chance, a simulation replays
            () = stop.cancelled() => return,
            Some(heard) = running.next() => keeper.hear(&core, heard).await,
            () = agenda.work.notified() => {}
            () = tokio::time::sleep_until(alarm) => {}
        }
    }
}

impl Keeper {
    /// Begins all that is due. Returns when to look again; `None`: the client has ended.
    async fn round(
        &mut self,
        core: &Weak<Core>,
        agenda: &Agenda,
        running: &mut Running,
    ) -> Option<Instant> {
        agenda.begin();
        let core = core.upgrade()?;
        let now = Instant::now();
        let mut renewals: BTreeMap<u16, Vec<Renewed>> = BTreeMap::new();
        let mut losses = 0;
        for shard in 0..SHARDS {
            while self
                .visit(&core, shard, now, &mut renewals, &mut losses)
                .await
            {}
        }
        renewals.retain(|partition, holds| !self.outages.wait(*partition, holds));
        for (partition, holds) in renewals {
            let turns = Arc::new(Semaphore::new(AT_ONCE));
            for holds in holds.chunks(BATCH) {
                let batch = Batch {
                    partition,
                    holds: holds.to_vec(),
                    is_probe: false,
                };
                running.push(Box::pin(renew(core.clone(), batch, turns.clone())));
            }
        }
        for (partition, holds) in self.outages.probes(now) {
            let batch = Batch {
                partition,
                holds,
                is_probe: true,
            };
            let turn = Arc::new(Semaphore::new(1));
            running.push(Box::pin(renew(core.clone(), batch, turn)));
        }
        self.ask(&core, agenda, running, now);
        let mut alarm = now + Duration::from_secs(3600);
        for shard in 0..SHARDS {
            alarm = alarm.min(core.table.shard(shard).wheel.first().unwrap_or(alarm));
        }
        let rest = [self.outages.first(), self.next_check()];
        let alarm = rest.into_iter().flatten().fold(alarm, Instant::min);
        agenda.set(alarm);
        Some(alarm)
    }

    /// Visits some of the holds of a shard that are due. Returns whether there may be more.
    async fn visit(
        &mut self,
        core: &Arc<Core>,
        shard: usize,
        now: Instant,
        renewals: &mut BTreeMap<u16, Vec<Renewed>>,
        losses: &mut usize,
    ) -> bool {
        let (mut over, mut kept, mut renewed) = (Vec::new(), Vec::new(), Vec::new());
        let visited = {
            let mut shard = core.table.shard(shard);
            let due = shard.wheel.take(now, PART);
            let visited = due.len();
            for held in due {
                match held.due(now) {
                    Due::Nothing => {}
                    Due::Over => over.push(held),
                    Due::Release => kept.push(held),
                    Due::Wait(until) => shard.wheel.place(&held, until),
                    Due::Renew(lease) => {
                        shard.wheel.place(&held, held.deadline());
                        renewed.push((held, lease));
                    }
                }
            }
            visited
        };
        // Outside of the mutex: the store says where a key is.
        for (held, lease) in renewed {
            let partition = core.store.partition_of(&held.hold.key);
            renewals.entry(partition).or_default().push((held, lease));
        }
        kept.iter().for_each(|held| core.release_kept(held));
        for held in over {
            core.lose(&held, held.why_over());
            *losses += 1;
            if (*losses).is_multiple_of(LOSSES) {
                tokio::task::yield_now().await;
            }
        }
        visited == PART
    }

    /// An answer has come.
    async fn hear(&mut self, core: &Weak<Core>, heard: Heard) {
        let Some(core) = core.upgrade() else {
            return;
        };
        match heard {
            Heard::Checked(partition) => self.checked(partition),
            Heard::Renewed {
                batch,
                sent,
                questions,
                answer,
            } => {
                // An answer that decides about no hold counts as no answer.
                let decides = |statuses: &Vec<HoldStatus>| {
                    statuses.iter().any(|status| *status != HoldStatus::Unknown)
                };
                match answer.and_then(|statuses| match decides(&statuses) {
                    true => Ok(statuses),
                    false => Err(undecided()),
                }) {
                    Ok(statuses) => {
                        self.renewed(&core, &batch, (sent, &questions), &statuses)
                            .await
                    }
                    Err(error) => self.not_renewed(&batch, &error),
                }
            }
        }
    }

    async fn renewed(
        &mut self,
        core: &Arc<Core>,
        batch: &Batch,
        (sent, questions): (Instant, &[Question]),
        statuses: &[HoldStatus],
    ) {
        let now = Instant::now();
        let mut lost = Vec::new();
        let mut unknown = 0;
        let answers = questions.iter().zip(statuses);
        for ((held, lease), (question, status)) in batch.holds.iter().zip(answers) {
            let (route, mode) = (&held.route, held.hold.mode);
            let overdue = held.overdue(now);
            let is_gone = held.answered(*question, *status, Some((sent, *lease)));
            match status {
                HoldStatus::Held => {
                    telemetry::renewed(route, mode, || overdue);
                    place(core, held, sent + *lease / 3);
                }
                // Its deadline does not change, and it is renewed again soon.
                HoldStatus::Unknown => {
                    telemetry::not_renewed(route, mode, "failed");
                    unknown += 1;
                    let pause = Duration::from_secs(1).min(held.lease.duration() / 10);
                    place(core, held, now + pause);
                }
                HoldStatus::Gone if is_gone => lost.push(held),
                HoldStatus::Gone => {}
            }
        }
        for held in self.outages.answered(batch.partition, now) {
            let left = held.deadline().saturating_duration_since(now);
            let spread = (held.lease.duration() / 10).min(left / 4);
            place(core, &held, now + spread.mul_f64(fastrand::f64()));
        }
        for (count, held) in lost.into_iter().enumerate() {
            if core.lose(held, "gone") {
                telemetry::not_renewed(&held.route, held.hold.mode, "lost");
            }
            if (count + 1).is_multiple_of(LOSSES) {
                tokio::task::yield_now().await;
            }
        }
        if unknown > 0 {
            self.outages.warn(&undecided(), unknown, false);
        }
    }

    fn not_renewed(&mut self, batch: &Batch, error: &StoreError) {
        for (held, _) in &batch.holds {
            telemetry::not_renewed(&held.route, held.hold.mode, "failed");
        }
        self.outages.failed(batch, error);
    }
}

/// The next visit of a hold, unless it has ended: from then on it is not visited.
fn place(core: &Core, held: &Arc<Held>, visit: Instant) {
    let mut shard = core.table.shard_of(&held.hold.key);
    if held.was_asked() {
        shard.wheel.place(held, visit.min(held.deadline()));
    }
}

/// Renews a batch, when it has a turn among the others of its partition.
async fn renew(core: Arc<Core>, batch: Batch, turns: Arc<Semaphore>) -> Heard {
    let _turn = turns.acquire().await;
    let renewals = batch.holds.iter();
    let renewals = renewals.map(|(held, lease)| Renewal::new(held.hold.clone(), *lease));
    let questions = batch
        .holds
        .iter()
        .map(|(held, _)| held.question())
        .collect();
    let sent = Instant::now();
    let answer = core.store.renew(renewals.collect()).answer().await;
    Heard::Renewed {
        batch,
        sent,
        questions,
        answer,
    }
}
