//! One side's queue.

use std::collections::VecDeque;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::entry::Delivery;
use super::{Admission, Asker, Courtesy, Terms};
use crate::error::LockError;
use crate::store::Wakeups;

/// Those who wait behind one of them.
#[derive(Default)]
pub(super) struct Lane {
    pub(super) voice: Voice,
    pub(super) queue: VecDeque<Waiter>,
    /// When the lease that the front waits for ends, as the store last said.
    pub(super) held_until: Option<Instant>,
    /// While the front holds: what it listened with.
    pub(super) ear: Option<Wakeups>,
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
        self.voice == Voice::Idle && self.queue.is_empty()
    }

    /// The front is done: the next one's turn.
    pub(super) fn next(&mut self, legacy: Legacy) -> Option<Delivery> {
        let Some(waiter) = self.queue.pop_front() else {
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

    pub(super) fn remove(&mut self, ticket: u64) -> Option<Waiter> {
        let mut all = self.queue.iter();
        let place = all.position(|waiter| waiter.ticket == ticket)?;
        self.queue.remove(place)
    }
}
