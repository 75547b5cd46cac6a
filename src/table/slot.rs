//! Where a request that waits gets its answer.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::new_share::NewShare;
use crate::error::LockError;
use crate::sync::Mutex;

/// The answer to a request, which may wait for several keys: the first grant is its answer.
///
/// The request polls it. A grant that it does not take for a while goes to another request.
#[derive(Debug)]
pub(crate) struct Slot(Mutex<SlotState>);

/// `Waits → Given → Over`; `Given → Revoked` if the request did not take the grant in time: it waits again, with another slot.
#[derive(Debug)]
enum SlotState {
    /// For how many keys it waits.
    Waits {
        tickets: usize,
        waker: Option<Waker>,
    },
    Given {
        ticket: u64,
        answer: Result<NewShare, LockError>,
    },
    /// The grant was taken away.
    Revoked,
    Over,
}

/// What a request finds in its slot.
#[derive(Debug)]
pub(crate) enum Taken {
    Answer(Result<NewShare, LockError>),
    /// It was not polled for a while, and its places are gone: it must wait again.
    Revoked,
}

/// An answer that the request does not want any more, or a waker to call after all mutexes are unlocked.
pub(crate) type Given = Result<Option<Waker>, Result<NewShare, LockError>>;

impl Slot {
    pub(crate) fn new() -> Arc<Self> {
        let tickets = 0;
        let waker = None;
        Arc::new(Self(Mutex::new(SlotState::Waits { tickets, waker })))
    }

    /// One more ticket waits with it. The error of another one is no answer then.
    pub(super) fn add(&self) {
        let mut state = self.0.lock();
        match &mut *state {
            SlotState::Waits { tickets, .. } => *tickets += 1,
            SlotState::Given { answer: Err(_), .. } => {
                let (tickets, waker) = (1, None);
                *state = SlotState::Waits { tickets, waker };
            }
            _ => {}
        }
    }

    /// Gives the answer of one ticket. An error is the answer only if no other ticket waits.
    pub(crate) fn give(&self, ticket: u64, answer: Result<NewShare, LockError>) -> Given {
        let mut state = self.0.lock();
        match &mut *state {
            SlotState::Waits { tickets, .. } if answer.is_err() && *tickets > 1 => {
                *tickets -= 1;
                Ok(None)
            }
            SlotState::Waits { waker, .. } => {
                let waker = waker.take();
                *state = SlotState::Given { ticket, answer };
                Ok(waker)
            }
            _ => Err(answer),
        }
    }

    /// Takes back a grant that the request has not taken. `None`: it has, or there was no grant.
    pub(super) fn revoke(&self, of: u64) -> Option<NewShare> {
        let mut state = self.0.lock();
        let SlotState::Given {
            ticket,
            answer: Ok(_),
        } = &*state
        else {
            return None;
        };
        if *ticket != of {
            return None;
        }
        match mem::replace(&mut *state, SlotState::Revoked) {
            SlotState::Given { answer, .. } => answer.ok(),
            _ => None,
        }
    }

    /// Whether a grant for this ticket may still be on its way, or is not taken.
    pub(super) fn is_untaken(&self) -> bool {
        matches!(
            &*self.0.lock(),
            SlotState::Waits { .. } | SlotState::Given { .. }
        )
    }

    /// The hold of a grant that is not taken.
    #[cfg(test)]
    pub(super) fn given(&self) -> Option<Arc<crate::hold::Held>> {
        match &*self.0.lock() {
            SlotState::Given {
                answer: Ok(grant), ..
            } => Some(grant.held.clone()),
            _ => None,
        }
    }

    /// Whether there is nothing in it.
    #[cfg(test)]
    pub(super) fn waits(&self) -> bool {
        matches!(&*self.0.lock(), SlotState::Waits { .. })
    }

    /// Takes what is there.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Taken> {
        self.poll_if(cx, |_| true)
    }

    /// Takes a grant, and nothing else.
    pub(crate) fn poll_grant(&self, cx: &mut Context<'_>) -> Poll<NewShare> {
        match self.poll_if(cx, Result::is_ok) {
            Poll::Ready(Taken::Answer(Ok(grant))) => Poll::Ready(grant),
            _ => Poll::Pending,
        }
    }

    /// Takes an answer that is `wanted`.
    fn poll_if(
        &self,
        cx: &mut Context<'_>,
        wanted: impl FnOnce(&Result<NewShare, LockError>) -> bool,
    ) -> Poll<Taken> {
        // Cloned and dropped without the mutex: a waker is code outside this crate.
        let new = cx.waker().clone();
        let mut state = self.0.lock();
        match &mut *state {
            SlotState::Waits { waker, .. } => {
                let before = waker.replace(new);
                drop(state);
                drop(before);
                Poll::Pending
            }
            SlotState::Revoked => Poll::Ready(Taken::Revoked),
            SlotState::Given { answer, .. } if wanted(answer) => {
                match mem::replace(&mut *state, SlotState::Over) {
                    SlotState::Given { answer, .. } => Poll::Ready(Taken::Answer(answer)),
                    _ => Poll::Pending,
                }
            }
            SlotState::Given { .. } | SlotState::Over => Poll::Pending,
        }
    }

    /// The request is over. Returns a grant that it has not taken.
    pub(crate) fn close(&self) -> Option<NewShare> {
        let closed = mem::replace(&mut *self.0.lock(), SlotState::Over);
        match closed {
            SlotState::Given { answer, .. } => answer.ok(),
            _ => None,
        }
    }
}
