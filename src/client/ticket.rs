//! A request, from its arrival to its grant.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::wait::{Wait, over};
use crate::contend::{Contending, Pending, attempt};
use crate::error::{LockError, StoreErrorKind};
use crate::lock::LockKey;
use crate::release::{Core, Share};
use crate::store::Attempt;
use crate::table::{Entered, Key, Side, Slot, Taken, Terms};
use crate::telemetry::{LockEventKind, Route};

/// Where a request asks the store, and where it waits: the first grant is its answer. If it is dropped, it leaves all places; a grant
/// that it has not taken goes to the next request.
pub(super) struct Ticket<'a> {
    pub(super) core: &'a Arc<Core>,
    pub(super) places: SmallVec<[Place<'a>; 1]>,
    slot: Option<Arc<Slot>>,
    /// That of its measurements.
    route: Route,
    /// When the request came.
    since: Instant,
}

/// A key that it asks or waits for.
pub(super) struct Place<'a> {
    pub(super) key: &'a LockKey,
    pub(super) terms: &'a Terms,
    pub(super) number: u64,
    /// While it asks, a shutdown waits for it.
    pub(super) asks: Option<TaskTrackerToken>,
    /// It asks beside others of its process: without a place in the store.
    is_beside: bool,
}

impl<'a> Ticket<'a> {
    pub(super) fn new(core: &'a Arc<Core>, route: Route, since: Instant) -> Self {
        Self {
            core,
            places: SmallVec::new(),
            slot: None,
            route,
            since,
        }
    }

    /// Comes in for a key: shares a hold, or asks or waits from now on.
    pub(super) fn enter(
        &mut self,
        key: &'a LockKey,
        terms: &'a Terms,
    ) -> Result<Option<Share>, LockError> {
        let number = self.core.next_number();
        // Before the table may refuse it: a shutdown that closes the table afterwards waits for it.
        let counted = self.core.spawner.tracker.token();
        let entered = self.core.entry(key, self.since, |key| {
            key.enter(number, terms, &mut self.slot)
        })?;
        let asks = matches!(entered, Entered::Ask { .. }).then_some(counted);
        let is_beside = matches!(entered, Entered::Ask { is_beside: true });
        let place = Place {
            key,
            terms,
            number,
            asks,
            is_beside,
        };
        Ok(self.placed(place, entered, None, None))
    }

    /// Waits in a place where it has asked. A task that starts goes on with what `pending` has left in the store.
    pub(super) fn stand(
        &mut self,
        mut place: Place<'a>,
        retry_after: Option<Duration>,
        pending: Option<Pending>,
        answer: Option<Result<Duration, StoreErrorKind>>,
    ) -> Result<Option<Share>, LockError> {
        let now = Instant::now();
        let until = retry_after.and_then(|retry_after| now.checked_add(retry_after));
        let has_place = |pending: &Pending| pending.attempt().patience.is_some();
        let news = (until, pending.as_ref().is_some_and(has_place));
        let entered = self.core.entry(place.key, now, |key| {
            key.refused(place.number, place.terms, &mut self.slot, news)
        })?;
        // Until a task has what `pending` has left, or it is on its way back.
        let _counted = place.asks.take();
        Ok(self.placed(place, entered, pending, answer))
    }

    /// The share, if it has got one. Otherwise the place is one of its own from now on.
    fn placed(
        &mut self,
        place: Place<'a>,
        entered: Entered,
        pending: Option<Pending>,
        answer: Option<Result<Duration, StoreErrorKind>>,
    ) -> Option<Share> {
        let start = match entered {
            Entered::Share(grant) => return Some(self.core.share(grant)),
            Entered::Ask { .. } => None,
            Entered::Wait { start } => start,
        };
        if let Some(task) = start {
            Contending::start(self.core, place.key, task, place.terms, pending, answer);
        }
        self.places.push(place);
        None
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

    /// Waits for a grant of a key for which it waits already, while it asks for others. All else is found out afterwards.
    pub(super) async fn given(&self) -> Share {
        let given = poll_fn(|cx| match &self.slot {
            Some(slot) => slot.poll_grant(cx),
            None => Poll::Pending,
        });
        let share = self.core.share(given.await);
        self.tell(&share);
        share
    }

    /// Reports the grant, for which the request has waited.
    fn tell(&self, share: &Share) {
        let hold = &share.held().hold;
        let waited = || LockEventKind::Granted {
            waited: self.since.elapsed(),
        };
        self.core
            .events
            .tell(&hold.key, Some(hold.mode), &self.route, waited);
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
        if self.places.len() > 1 {
            self.leave();
        }
        if let Some(grant) = self.slot.take().and_then(|slot| slot.close()) {
            return Ok(Some(self.core.share(grant)));
        }
        for place in std::mem::take(&mut self.places) {
            if let Some(share) = self.stand(place, None, None, None)? {
                return Ok(Some(share));
            }
        }
        Ok(None)
    }

    fn leave(&self) {
        self.places.iter().for_each(|place| place.leave(self.core));
    }

    /// The error after the time-out: others hold the keys, or the store never answered.
    fn why_not(&self) -> LockError {
        let now = Instant::now();
        let known = self.places.iter().filter_map(|place| {
            let mode = place.terms.mode;
            let known = |key: &Key| key.known(mode, self.since, now);
            self.core.table.read(place.key, known).flatten()
        });
        match known.reduce(|one, other| one.into_iter().chain(other).min()) {
            Some(retry_after) => LockError::Busy { retry_after },
            None => over(),
        }
    }
}

impl Place<'_> {
    /// Its attempt.
    pub(super) fn attempt(&self, core: &Core) -> Attempt {
        let attempt = attempt(core, self.key, self.terms, self.number);
        match self.is_beside {
            true => attempt.patience(None),
            false => attempt,
        }
    }

    /// It neither asks nor waits here any more.
    pub(super) fn leave(&self, core: &Arc<Core>) {
        let side = Side::of(self.terms.mode);
        core.event(self.key, Instant::now(), |key| key.left(side, self.number));
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if let Some(grant) = self.slot.take().and_then(|slot| slot.close()) {
            drop(self.core.share(grant));
        }
        self.leave();
    }
}
