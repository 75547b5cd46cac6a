//! The effects of an event.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::new_share::NewShare;
use super::slot::Slot;
use crate::error::LockError;

/// The effects of an event, executed after the mutex is unlocked.
#[derive(Debug, Default)]
pub(crate) struct Out {
    /// When the keeper must visit a hold that it did not know.
    pub(crate) visit: Option<Instant>,
    /// Boxed: most events concern no other request.
    pub(crate) others: Option<Box<Others>>,
}

/// What an event does to requests that wait.
#[derive(Debug, Default)]
pub(crate) struct Others {
    /// Requests that get their answer. A grant that is not taken is ended.
    pub(crate) tell: SmallVec<[Told; 1]>,
    /// Grants that no request has taken for too long: they are ended.
    pub(crate) untaken: SmallVec<[NewShare; 1]>,
    /// Tasks that have something to do.
    pub(crate) wake: SmallVec<[Arc<Notify>; 2]>,
}

impl Out {
    pub(super) fn tell(
        &mut self,
        slot: Arc<Slot>,
        ticket: u64,
        answer: Result<NewShare, LockError>,
    ) {
        self.others().tell.push(Told {
            slot,
            ticket,
            answer,
        });
    }

    pub(super) fn others(&mut self) -> &mut Others {
        self.others.get_or_insert_default()
    }
}

/// The answer to a request that waits.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) slot: Arc<Slot>,
    pub(crate) ticket: u64,
    pub(crate) answer: Result<NewShare, LockError>,
}

/// What becomes of a hold when a share ends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ShareEnd {
    /// Others share it, it has passed to the next request, or the store keeps it until its minimum is over: the store is asked
    /// whether it carries it.
    GoesOn,
    /// It must be released in the store. `awaited`: then that is an event for this process.
    Release { awaited: bool },
}

impl Default for ShareEnd {
    /// That of a hold which is not in the table.
    fn default() -> Self {
        Self::Release { awaited: false }
    }
}
