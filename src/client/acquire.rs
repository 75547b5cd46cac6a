//! The one question that a free lock costs.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use tokio::time::{Instant, timeout_at};

use super::ticket::{Place, Ticket};
use super::wait::{Wait, over};
use crate::contend::{Pending, answered_late, held};
use crate::error::{LockError, StoreError, StoreErrorKind};
use crate::hold::{Held, valid_for};
use crate::release::{Core, Share};
use crate::store::{Asked, Reply};

impl<'a> Ticket<'a> {
    /// Whether it may ask for its first key.
    pub(super) fn asks(&self) -> bool {
        let first = self.places.first();
        first.is_some_and(|place| place.asks.is_some())
    }

    /// Takes the one key for which it has come in: asks the store if it may, and waits.
    #[expect(
        clippy::manual_async_fn,
        reason = "the future of an `async fn` has its arguments twice"
    )]
    pub(super) fn take(&mut self, wait: Wait) -> impl Future<Output = Result<Share, LockError>> {
        async move {
            if self.asks()
                && let Some(share) = self.ask(wait).await?
            {
                return Ok(share);
            }
            self.wait(wait).await
        }
    }

    /// Asks once. If the store is silent or refuses, the request waits, and a task asks for it.
    fn ask(&mut self, wait: Wait) -> impl Future<Output = Result<Option<Share>, LockError>> {
        let attempt = self.places[0].attempt(self.core);
        let mut pending = Pending::one(self.core, attempt);
        async move {
            let answer = {
                let asking = pin!(pending.ask());
                unless_closed(self.core, wait, asking).await?
            };
            self.answered(wait, pending, answer)
        }
    }

    /// The same for a store that answers at once.
    pub(super) fn ask_now(&mut self, wait: Wait) -> Result<Option<Share>, LockError> {
        // The request may have come long ago: its thread may have stood still since.
        let now = Instant::now();
        let Place { terms, .. } = self.places[0];
        let attempt = self.places[0].attempt(self.core);
        let answer = match self.core.store.acquire(&attempt) {
            Asked::Now(Ok(Reply::Granted(grants))) => {
                let until = now + valid_for(attempt.lease);
                let held = held(attempt.hold, terms, grants[0].token, until);
                return self.granted(held, now).map(Some);
            }
            Asked::Now(answer) => answer,
            Asked::Later(_) => unreachable!("the store answers at once"),
        };
        let pending = Pending::answered(self.core, attempt, &answer);
        self.answered(wait, pending, answer)
    }

    fn answered(
        &mut self,
        wait: Wait,
        mut pending: Pending,
        answer: Result<Reply, StoreError>,
    ) -> Result<Option<Share>, LockError> {
        let answer = match answer {
            Ok(Reply::Granted(grants)) => {
                let (now, terms) = (Instant::now(), self.places[0].terms);
                let granted = pending.granted(&grants, |_| terms, now);
                match granted.and_then(|mut holds| holds.pop()) {
                    Some(held) => return self.granted(held, now).map(Some),
                    None => Err(answered_late()),
                }
            }
            Ok(Reply::Refused { retry_after, .. }) => Ok(retry_after),
            Err(error) => Err(error),
        };
        match answer {
            Ok(retry_after) if wait.is_one_try() => Err(LockError::Busy {
                retry_after: Some(retry_after),
            }),
            Err(error) if wait.is_one_try() || error.is_final() => Err(error.into()),
            answer => {
                let retry_after = answer.as_ref().ok().copied();
                let answer = answer.map_err(|error| error.kind());
                // One that may still be granted is withdrawn, and the next question has another id.
                let is_known = answer != Err(StoreErrorKind::Unanswered);
                let pending = is_known.then_some(pending);
                let place = self.places.remove(0);
                self.stand(place, retry_after, pending, Some(answer))
            }
        }
    }

    /// The store has granted the hold of the last place, which asks no more.
    pub(super) fn granted(&mut self, held: Arc<Held>, now: Instant) -> Result<Share, LockError> {
        let core = self.core;
        let place = self.places.pop().expect("it has asked");
        let granted = core.event(place.key, now, |key| {
            key.granted(place.number, held, place.terms)
        });
        match granted.expect("the key of a request that asks is here") {
            Ok(grant) => Ok(core.share(grant)),
            Err(held) => {
                core.release_unwanted(held);
                Err(LockError::Shutdown)
            }
        }
    }
}

/// Waits for an answer until the wait is over, or the client is shut down.
#[expect(
    clippy::manual_async_fn,
    reason = "the future of an `async fn` has its arguments twice"
)]
pub(super) fn unless_closed<T>(
    core: &Core,
    wait: Wait,
    mut work: Pin<&mut impl Future<Output = T>>,
) -> impl Future<Output = Result<T, LockError>> {
    async move {
        // In memory it is done by now, also outside of a runtime.
        if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await {
            return Ok(done);
        }
        tokio::select! {
            biased; // without chance, a simulation replays
            done = timeout_at(wait.until, work) => done.map_err(|_| over()),
            () = core.closing.cancelled() => Err(LockError::Shutdown),
        }
    }
}
