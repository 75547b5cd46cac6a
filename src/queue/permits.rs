//! The queue of the requests for permits of a key.

use super::Effect;
use super::wait_queue::{Handoff, WaitQueue};
#[cfg(test)]
use crate::exploration::{self, Mutant};

/// The requests for permits of a key.
///
/// Every request needs its own hold, except that an owner joins the one it has; none is handed over. As many requests as
/// there are permits ask the store concurrently, until one of them is refused. From then on new requests wait, and those
/// that ask continue: each listens and asks again. When the last of them is done, the next request asks, and so on. So one request of the process
/// asks for a free permit, however many wait.
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
    /// Whether a new request asks now. A request that does not wait (`waits` is false) asks unless a refusal is certain.
    pub(super) fn admits(&self, limit: usize, waits: bool) -> bool {
        #[cfg(test)]
        if exploration::has(Mutant::HerdAsks) {
            return true;
        }
        !self.refused && (!waits || self.queue.is_empty() && self.asking < limit)
    }

    /// Whether no request asks, so that none waits.
    pub(super) fn is_idle(&self) -> bool {
        self.asking == 0
    }

    /// A request asks.
    pub(super) fn begin(&mut self) {
        self.asking += 1;
    }

    /// A request that asks was refused, and continues to ask.
    pub(super) fn refused(&mut self) {
        self.refused = true;
    }

    /// A request that asked is done, granted or not.
    pub(super) fn done(&mut self, handoff: Handoff) -> Option<Effect> {
        self.asking -= 1;
        if self.asking > 0 && self.refused {
            return handoff.wakeups.map(Effect::Unsubscribe);
        }
        self.refused = false;
        #[cfg(test)]
        if exploration::has(Mutant::PermitTurnKept) {
            return handoff.wakeups.map(Effect::Unsubscribe);
        }
        let next = self.queue.next(handoff);
        if let Some(Effect::Ask(..)) = next {
            self.begin();
        }
        next
    }
}
