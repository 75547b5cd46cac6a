//! The queue of the requests for permits of a key.

use super::Effect;
use super::wait_queue::{Handoff, WaitQueue};
#[cfg(test)]
use crate::exploration::{self, Mutant};

/// The requests for permits of a key.
///
/// Every request needs its own hold, except that an owner joins the one it has; none is handed over. As many requests as
/// there are permits ask the store concurrently, until one of them is refused. From then on new requests wait, and those
/// that ask continue: each listens and asks again. When the last of them is done, the next request asks, and so on.
///
/// A grant without a refusal shows that permits may be free: then two requests ask in the place of the one, and so on, until one of
/// them is refused. So few requests of the process ask while no permit is free, however many wait.
///
/// The mutex of the key's shard protects it. Between calls, requests wait only while `asking > 0`, and `refused` only holds then.
#[derive(Default)]
pub(super) struct PermitQueue {
    pub(super) queue: WaitQueue,
    /// The number of requests that ask the store.
    asking: usize,
    /// One of them was refused.
    refused: bool,
}

impl PermitQueue {
    /// Returns whether a new request asks now. A request that does not wait (`waits` is false) asks unless a refusal is certain.
    pub(super) fn admit(&mut self, limit: usize, waits: bool) -> bool {
        let admitted = !self.refused && (!waits || self.queue.is_empty() && self.asking < limit);
        #[cfg(test)]
        let admitted = admitted || exploration::has(Mutant::HerdAsks);
        self.asking += usize::from(admitted);
        admitted
    }

    /// Whether no request asks, so that none waits.
    pub(super) fn is_idle(&self) -> bool {
        self.asking == 0
    }

    /// A request that asks was refused, and continues to ask.
    pub(super) fn refused(&mut self) {
        self.refused = true;
    }

    /// A request that asked for one of `limit` permits was granted.
    pub(super) fn granted(&mut self, limit: usize, handoff: Handoff, effects: &mut Vec<Effect>) {
        let was_refused = self.refused;
        self.done(handoff, effects);
        if !was_refused && self.asking < limit && !self.queue.is_empty() {
            self.pass_turn(Handoff::default(), effects);
        }
    }

    /// A request that asked is done, granted or not.
    pub(super) fn done(&mut self, handoff: Handoff, effects: &mut Vec<Effect>) {
        self.asking -= 1;
        if self.asking > 0 && self.refused {
            effects.extend(handoff.unused());
            return;
        }
        self.refused = false;
        self.pass_turn(handoff, effects);
    }

    /// The next request that waits asks.
    fn pass_turn(&mut self, handoff: Handoff, effects: &mut Vec<Effect>) {
        #[cfg(test)]
        if exploration::has(Mutant::PermitTurnKept) {
            effects.extend(handoff.unused());
            return;
        }
        let next = self.queue.next(handoff);
        if let Some(Effect::Ask(..)) = next {
            self.asking += 1;
        }
        effects.extend(next);
    }
}
