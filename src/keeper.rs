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
use tokio::time::Instant;

use crate::error::StoreError;
use crate::hold::{Due, Held};
use crate::release::{Agenda, Core};
use crate::table::SHARDS;

mod checks;
mod renewals;
#[cfg(test)]
mod tests;

use checks::Checks;
use renewals::Renewals;

/// How many holds are visited under the mutex of a shard at a time.
const PART: usize = 64;

/// After how many losses the thread is given to others.
const LOSSES: usize = 256;

/// What the task hears.
enum Heard {
    /// The answer to a question about a partition, by its number: about how many holds it decides nothing.
    Renewed(u16, u64, Result<usize, StoreError>),
    /// The checks of a partition are done.
    Checked(u16),
}

type Running = FuturesUnordered<BoxFuture<'static, Heard>>;

/// The state of the task alone.
#[derive(Default)]
struct Keeper {
    renewals: Renewals,
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
            Some(heard) = running.next() => keeper.hear(heard),
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
        let (mut left, mut losses) = (Vec::new(), 0);
        for shard in 0..SHARDS {
            while self.visit(&core, shard, now, &mut left, &mut losses).await {}
        }
        if !left.is_empty() {
            core.release_left(left);
        }
        self.renewals.ask(&core, running, now);
        self.ask(&core, agenda, running, now);
        let mut alarm = now + Duration::from_secs(3600);
        for shard in 0..SHARDS {
            alarm = alarm.min(core.table.shard(shard).wheel.first().unwrap_or(alarm));
        }
        let rest = [self.renewals.next(now), self.next_check()];
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
        left: &mut Vec<Arc<Held>>,
        losses: &mut usize,
    ) -> bool {
        let (mut over, mut renewed) = (Vec::new(), Vec::new());
        let visited = {
            let mut shard = core.table.shard(shard);
            let due = shard.wheel.take(now, PART);
            let visited = due.len();
            for held in due {
                match held.due(now) {
                    Due::Nothing => {}
                    Due::Over => over.push(held),
                    Due::Release => left.push(held),
                    Due::Wait(until) => shard.wheel.place(&held, until),
                    Due::Renew => {
                        shard.wheel.place(&held, held.deadline());
                        renewed.push(held);
                    }
                }
            }
            visited
        };
        // Outside of the mutex: the store says where a key is.
        for held in renewed {
            let partition = core.store.partition_of(&held.hold.key);
            self.renewals.push(partition, held);
        }
        for held in over {
            core.lose(&held, held.why_over());
            *losses += 1;
            if (*losses).is_multiple_of(LOSSES) {
                tokio::task::yield_now().await;
            }
        }
        visited == PART
    }

    fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Renewed(partition, number, answer) => {
                self.renewals.answered(partition, number, answer);
            }
            Heard::Checked(partition) => self.checked(partition),
        }
    }
}
