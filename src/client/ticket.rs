//! A request that waits.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use smallvec::SmallVec;
use tokio::time::{Instant, timeout_at};

use super::wait::{Wait, over};
use crate::contend::Contending;
use crate::error::LockError;
use crate::lock::LockKey;
use crate::release::{Core, Share};
use crate::table::{Entered, Key, Side, Slot, Taken, Terms};
use crate::telemetry::LockEventKind;

/// The places of a request that waits: the first grant is its answer. If it is dropped, it leaves them; a grant that it has not taken
/// goes to the next request.
pub(super) struct Ticket<'a> {
    core: &'a Arc<Core>,
    pub(super) slot: Option<Arc<Slot>>,
    places: SmallVec<[Place<'a>; 1]>,
    since: Instant,
}

struct Place<'a> {
    key: &'a LockKey,
    terms: &'a Terms,
    number: u64,
}

impl<'a> Ticket<'a> {
    pub(super) fn new(core: &'a Arc<Core>, since: Instant) -> Self {
        Self {
            core,
            slot: None,
            places: SmallVec::new(),
            since,
        }
    }

    /// Whether it waits for no key.
    pub(super) fn is_idle(&self) -> bool {
        self.places.is_empty()
    }

    pub(super) fn add(&mut self, key: &'a LockKey, terms: &'a Terms, number: u64) {
        self.places.push(Place { key, terms, number });
    }

    /// Waits for a grant.
    pub(super) async fn wait(&mut self, wait: Wait) -> Result<Share, LockError> {
        match timeout_at(wait.until, poll_fn(|cx| self.poll(cx))).await {
            Ok(given) => {
                if let Ok(share) = &given {
                    self.tell(share);
                }
                given
            }
            Err(_) => Err(self.why_not()),
        }
    }

    /// Reports the grant, for which the request has waited.
    fn tell(&self, share: &Share) {
        let hold = &share.held().hold;
        let waited = || LockEventKind::Granted {
            waited: self.since.elapsed(),
        };
        if let Some(place) = self.places.first() {
            let route = &place.terms.route;
            self.core
                .events
                .tell(&hold.key, Some(hold.mode), route, waited);
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Share, LockError>> {
        loop {
            let Some(slot) = self.slot.clone() else {
                return Poll::Pending;
            };
            match slot.poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Taken::Answer(answer)) => {
                    return Poll::Ready(answer.map(|grant| self.core.share(grant)));
                }
                // It was not polled for a while. Its places are still the same.
                Poll::Ready(Taken::Revoked) => match self.stand_again() {
                    Ok(Some(share)) => return Poll::Ready(Ok(share)),
                    Ok(None) => {}
                    Err(error) => return Poll::Ready(Err(error)),
                },
            }
        }
    }

    /// Waits again for every key, as further keys may have been granted since, and refused.
    fn stand_again(&mut self) -> Result<Option<Share>, LockError> {
        let (core, now) = (self.core, Instant::now());
        if self.places.len() > 1 {
            self.leave_lines();
        }
        if let Some(grant) = self.slot.take().and_then(|slot| slot.close()) {
            return Ok(Some(core.share(grant)));
        }
        for &Place { key, terms, number } in &self.places {
            let entered = core.entry(key, now, |key| {
                key.refused(number, terms, &mut self.slot, (None, false))
            });
            match entered? {
                Entered::Share(grant) => return Ok(Some(core.share(grant))),
                Entered::Wait { start: Some(task) } => {
                    Contending::start(core, key, task, None, None);
                }
                Entered::Wait { start: None } | Entered::Ask => {}
            }
        }
        Ok(None)
    }

    fn leave_lines(&self) {
        let now = Instant::now();
        for Place { key, terms, number } in &self.places {
            let side = Side::of(terms.mode);
            self.core.event(key, now, |key| key.left(side, *number));
        }
    }

    /// The error after the time-out: others hold the keys, or the store never answered.
    fn why_not(&self) -> LockError {
        let now = Instant::now();
        let known = self.places.iter().filter_map(|place| {
            let (key, mode) = (place.key, place.terms.mode);
            let known = |key: &Key| key.known(mode, self.since, now);
            self.core.table.read(key, known).flatten()
        });
        match known.reduce(|one, other| one.into_iter().chain(other).min()) {
            Some(retry_after) => LockError::Busy { retry_after },
            None => over(None),
        }
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else {
            return;
        };
        if let Some(grant) = slot.close() {
            drop(self.core.share(grant));
        }
        self.leave_lines();
    }
}
