//! One side's queue.

use std::collections::VecDeque;
use std::mem;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::entry::Delivery;
use super::{Admission, Asker, Courtesy, Terms};
use crate::error::LockError;
#[cfg(test)]
use crate::exploration::{self, Mutant};
use crate::store::Wakeups;

/// Those who wait behind one of them.
#[derive(Default)]
pub(super) struct Lane {
    pub(super) voice: Voice,
    /// Nobody waits for most keys, and there may be many of them.
    waiting: Option<Box<Waiting>>,
}

#[derive(Default)]
struct Waiting {
    queue: VecDeque<Waiter>,
    /// When the lease that the front waits for ends, as the store last said.
    held_until: Option<Instant>,
    /// While the front holds: what it listened with.
    ear: Option<Wakeups>,
}

/// What one front of a lane leaves to the next.
#[derive(Debug, Default)]
pub(super) struct Legacy {
    /// It goes on listening: a hot key need not be subscribed to anew at every turn.
    pub(super) ear: Option<Wakeups>,
    /// It lets other processes go first.
    pub(super) courtesy: Courtesy,
}

impl From<Option<Wakeups>> for Legacy {
    fn from(ear: Option<Wakeups>) -> Self {
        Self {
            ear,
            ..Self::default()
        }
    }
}

/// What the front of a lane does.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Voice {
    #[default]
    Idle,
    /// It asks the store, or is releasing there; the others wait for it.
    Asking,
    /// It holds.
    Holding,
}

/// Somebody who waits in this process.
pub(super) struct Waiter {
    pub(super) ticket: u64,
    pub(super) terms: Terms,
    pub(super) sender: oneshot::Sender<Result<Admission, LockError>>,
}

impl Lane {
    /// Whether nobody holds, asks or waits.
    pub(super) fn is_idle(&self) -> bool {
        self.voice == Voice::Idle && self.is_empty()
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        let waiting = self.waiting.as_ref();
        waiting.map_or(0, |waiting| waiting.queue.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn front(&self) -> Option<&Waiter> {
        self.waiting.as_ref()?.queue.front()
    }

    pub(super) fn pop(&mut self) -> Option<Waiter> {
        self.waiting.as_mut()?.queue.pop_front()
    }

    pub(super) fn push(&mut self, waiter: Waiter) {
        let queue = &mut self.waiting().queue;
        #[cfg(test)]
        if exploration::has(Mutant::LastInFirstOut) {
            return queue.push_front(waiter);
        }
        queue.push_back(waiter);
    }

    /// All who wait leave the queue.
    pub(super) fn take_all(&mut self) -> VecDeque<Waiter> {
        let waiting = self.waiting.as_mut();
        waiting.map_or_else(VecDeque::new, |waiting| mem::take(&mut waiting.queue))
    }

    pub(super) fn remove(&mut self, ticket: u64) -> Option<Waiter> {
        let queue = &mut self.waiting.as_mut()?.queue;
        let place = queue.iter().position(|waiter| waiter.ticket == ticket)?;
        queue.remove(place)
    }

    /// When the lease that the front waits for ends, as far as it has heard.
    pub(super) fn held_until(&self) -> Option<Instant> {
        self.waiting.as_ref()?.held_until
    }

    pub(super) fn hears(&mut self, held_until: Option<Instant>) {
        self.waiting().held_until = held_until;
    }

    /// The front holds, and does not listen meanwhile. It comes back if nobody is there to go on listening.
    pub(super) fn keep_ear(&mut self, ear: Option<Wakeups>) -> Option<Wakeups> {
        if ear.is_none() || self.is_empty() {
            return ear;
        }
        mem::replace(&mut self.waiting().ear, ear)
    }

    pub(super) fn take_ear(&mut self) -> Option<Wakeups> {
        self.waiting.as_mut()?.ear.take()
    }

    /// The front is done: the next one's turn.
    pub(super) fn next(&mut self, legacy: Legacy) -> Option<Delivery> {
        let Some(waiter) = self.pop() else {
            self.voice = Voice::Idle;
            return legacy.ear.map(Delivery::Silence);
        };
        self.voice = Voice::Asking;
        let asker = Asker {
            mode: waiter.terms.mode,
            owner: waiter.terms.owner.clone(),
            nested: None,
        };
        Some(Delivery::Turn(waiter, asker, legacy))
    }

    fn waiting(&mut self) -> &mut Waiting {
        self.waiting.get_or_insert_default()
    }
}
