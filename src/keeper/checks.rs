//! Whether the store carries the holds whose shares have ended.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::time::Instant;

use super::{Heard, Keeper, Running};
use crate::backoff::Backoff;
use crate::hold::Held;
use crate::limits::{ANSWER_TIME, LAST_MOMENT};
use crate::release::{Agenda, Core};
use crate::store::{BATCH, HoldStatus, Renewal};

#[derive(Default)]
pub(super) struct Checks {
    waiting: Vec<(Arc<Held>, Instant)>,
    /// How many questions are under way, and since when the latest is.
    asking: usize,
    asked: Option<Instant>,
}

impl Checks {
    /// Until when those that come share the next question: one that hangs does not keep others from asking.
    fn blocked_until(&self) -> Option<Instant> {
        let asked = self.asked.filter(|_| self.asking > 0);
        asked.map(|asked| asked + LAST_MOMENT)
    }
}

/// Asks about holds until the store decides, or those who wait for that have given up.
async fn check(core: Arc<Core>, partition: u16, mut holds: Vec<(Arc<Held>, Instant)>) -> Heard {
    let mut backoff = Backoff::STORE;
    let over = holds.iter().map(|(_, since)| *since).max();
    let over = over.unwrap_or_else(Instant::now) + ANSWER_TIME;
    loop {
        let mut open = Vec::new();
        for batch in holds.chunks(BATCH) {
            let checks = batch
                .iter()
                .map(|(held, _)| Renewal::check(held.hold.clone()));
            let questions: Vec<_> = batch.iter().map(|(held, _)| held.question()).collect();
            match core.store.renew(checks.collect()).answer().await {
                Ok(statuses) => {
                    for (((held, since), question), status) in
                        batch.iter().zip(questions).zip(statuses)
                    {
                        if held.answered(question, status, None) {
                            core.lose(held, "gone");
                        }
                        if status == HoldStatus::Unknown {
                            open.push((held.clone(), *since));
                        }
                    }
                }
                Err(_) => open.extend_from_slice(batch),
            }
        }
        holds = open;
        if holds.is_empty() || !backoff.pause_before(over).await {
            return Heard::Checked(partition);
        }
    }
}

impl Keeper {
    /// Asks about the holds whose shares have ended. Checks of one partition share a question; those that come while one is under way
    /// share the next.
    pub(super) fn ask(
        &mut self,
        core: &Arc<Core>,
        agenda: &Agenda,
        running: &mut Running,
        now: Instant,
    ) {
        for (held, since) in std::mem::take(&mut *agenda.checks.lock()) {
            let partition = core.store.partition_of(&held.hold.key);
            self.checks
                .entry(partition)
                .or_default()
                .waiting
                .push((held, since));
        }
        for (&partition, checks) in &mut self.checks {
            let is_blocked = checks.blocked_until().is_some_and(|until| now < until);
            if is_blocked || checks.waiting.is_empty() {
                continue;
            }
            checks.asking += 1;
            checks.asked = Some(now);
            let mut known = HashSet::new();
            let mut waiting = std::mem::take(&mut checks.waiting);
            waiting.retain(|(held, _)| known.insert(Arc::as_ptr(held) as usize));
            running.push(Box::pin(check(core.clone(), partition, waiting)));
        }
    }

    /// A question of this partition is over.
    pub(super) fn checked(&mut self, partition: u16) {
        if let Some(checks) = self.checks.get_mut(&partition) {
            checks.asking -= 1;
            if checks.asking == 0 && checks.waiting.is_empty() {
                self.checks.remove(&partition);
            }
        }
    }

    pub(super) fn next_check(&self) -> Option<Instant> {
        let checks = self.checks.values();
        let blocked = checks.filter(|checks| !checks.waiting.is_empty());
        blocked.filter_map(Checks::blocked_until).min()
    }
}
