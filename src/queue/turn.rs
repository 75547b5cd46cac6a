//! The turn to ask the store. It returns to the state machine when it is dropped.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::fairness;
use super::wait_queue::{Handoff, Others};
use super::{HandoverLimits, Intent, Queues, Share, Terms};
#[cfg(test)]
use crate::exploration::{self, Mutant};
use crate::lock::{HoldId, LockKey, LockMode};
use crate::store::Wakeups;
use crate::watchdog::LiveHold;

/// The turn to ask the store for a key. If it is dropped without a grant, it passes to the next request.
pub(crate) struct Turn {
    queues: Arc<Queues>,
    key: LockKey,
    intent: Intent,
    handoff: Handoff,
    done: bool,
}

impl Turn {
    pub(super) fn new(
        queues: &Arc<Queues>,
        key: &LockKey,
        intent: Intent,
        handoff: Handoff,
    ) -> Self {
        Self {
            queues: queues.clone(),
            key: key.clone(),
            intent,
            handoff,
            done: false,
        }
    }

    /// The subscription of this turn. The next turns use it as well.
    pub(crate) fn wakeups(&mut self) -> &mut Option<Wakeups> {
        &mut self.handoff.wakeups
    }

    /// How long to yield to other processes; `None` if no turn is owed.
    pub(crate) fn pause(&self) -> Option<Duration> {
        match &self.handoff.others {
            Others::Owed(fairness) => fairness.pause(),
            _ => None,
        }
    }

    /// A message has come: another process has released.
    pub(crate) fn count_message(&mut self) {
        match &mut self.handoff.others {
            Others::Served { messages } => *messages = messages.saturating_add(1),
            Others::Owed(fairness) => fairness.count_message(),
            Others::Unknown | Others::None => {}
        }
    }

    /// The mode in which to ask.
    pub(crate) fn mode(&self) -> LockMode {
        self.intent.mode
    }

    /// The owner's write hold, if this is the turn to read under it: ask with its id.
    pub(crate) fn nested(&self) -> Option<HoldId> {
        self.intent.nested
    }

    /// Whether other requests of this process hold the key, or ask for it at the same time.
    pub(crate) fn is_crowded(&self) -> bool {
        self.queues.with(&self.key, |state| state.is_crowded())
    }

    /// Records the rest of another holder's lease, for the requests behind this turn.
    pub(crate) fn refused(&self, retry_after: Duration) {
        let at = self.queues.at(Instant::now());
        let until = at.now.checked_add(retry_after);
        self.queues
            .with(&self.key, |state| state.refused(&self.intent, until, at));
    }

    /// The store granted `live`, and it is not lost by `now`: renews it and shares it. The turn has ended.
    pub(crate) fn granted(&mut self, live: Arc<LiveHold>, terms: &Terms, now: Instant) -> Share {
        self.done = true;
        let mode = live.hold.mode;
        let wakeups = self.handoff.wakeups.take();
        let at = self.queues.at(now);
        let limits = at.handover_limits;
        let turn = match &self.handoff.others {
            Others::Unknown => None,
            Others::None => Some(None),
            Others::Served { messages } => Some(Some(HandoverLimits {
                handovers: fairness::handovers_like_theirs(*messages).min(limits.handovers),
                ..limits
            })),
            Others::Owed(fairness) => fairness.next_turn(now).map(|turn| {
                Some(HandoverLimits {
                    handover_time: turn.min(limits.handover_time),
                    ..limits
                })
            }),
        };
        let (grant, effects) = self.queues.with(&self.key, |state| {
            if let Some(turn) = turn {
                state.set_turn(mode, turn);
            }
            state.granted(live, terms, &self.intent, wakeups, at)
        });
        self.queues.begin(&self.key, grant, effects)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        #[cfg(test)]
        if exploration::has(Mutant::TurnKept) {
            return;
        }
        let handoff = mem::take(&mut self.handoff);
        let effects = self.queues.with(&self.key, |state| {
            state.yielded(&self.intent, handoff, self.queues.at(Instant::now()))
        });
        self.queues.apply(&self.key, effects);
    }
}
