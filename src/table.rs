//! Who holds, who waits and who asks in this process: a state machine for each key.
//!
//! It is pure: an event comes in with its time, and an [`Out`] comes back, which the caller executes after the mutex is unlocked.
//! It calls no store, reads no clock, and nothing in it acts when it is dropped.
//!
//! | event | |
//! |---|---|
//! | [`enter`](Table::enter) | a request comes: it shares a hold, asks the store, or waits with a ticket |
//! | [`granted`](Table::granted), [`given`](Table::given) | the store has granted a hold to the request that asked, or to those that wait |
//! | [`refused`](Table::refused), [`asked`](Table::asked) | the request that asked waits now, or is over |
//! | [`left`](Table::left) | a request that waits is over |
//! | [`ended`](Table::ended), [`released`](Table::released) | the share of a hold ends: the hold goes on, passes to the next request, or is released |
//! | [`lost`](Table::lost) | a hold is lost |
//! | [`next`](Table::next) | what the task of a contended key does next |

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::LockError;
use crate::hold::Held;
use crate::lock::{LockKey, LockMode};
use crate::store::Released;

mod counts;
mod grant;
mod key;
mod line;
mod out;
mod shards;
mod shared;
mod slot;
mod snapshot;
mod terms;
#[cfg(test)]
mod tests;
mod wheel;

pub(crate) use grant::{Grant, Holder};
pub(crate) use key::Entered;
pub(crate) use line::{Next, Side, Task};
pub(crate) use out::{Ended, Others, Out};
use shards::TableShard;
pub(crate) use slot::{Slot, Taken};
pub(crate) use snapshot::{HoldView, KeyView, WaiterView};
pub(crate) use terms::{HandoverLimits, Terms};

/// The number of shards, each with a mutex of its own. One in an exploration, where each mutex is a point at which others run.
pub(crate) const SHARDS: usize = if cfg!(shuttle) { 1 } else { 16 };

/// The table of a client.
pub(crate) struct Table {
    shards: [TableShard; SHARDS],
    pub(crate) limits: HandoverLimits,
    max_keys: usize,
    /// Whether a release is an event of its own: a store answers it later, and a request that asks before is refused.
    releases_later: bool,
}

/// The circumstances of an event.
#[derive(Debug, Clone, Copy)]
struct At {
    now: Instant,
    limits: HandoverLimits,
}

impl Table {
    pub(crate) fn new(limits: HandoverLimits, max_keys: usize, releases_later: bool) -> Self {
        Self {
            shards: Default::default(),
            limits,
            max_keys,
            releases_later,
        }
    }

    /// A request comes, with the `number` that it may ask and wait by. One that waits gets its answer in `slot`.
    ///
    /// # Errors
    ///
    /// `Busy` for a request that does not wait, and `Overloaded` for one too many, also if there is one key too many; `Lost`,
    /// `Upgrade` and `Invalid` because of the owner's own holds; `Shutdown`.
    pub(crate) fn enter(
        &self,
        key: &LockKey,
        number: u64,
        terms: &Terms,
        slot: &mut Option<Arc<Slot>>,
        now: Instant,
    ) -> Result<(Entered, Out), LockError> {
        self.insert(key, |place| {
            if place.closed {
                return Err(LockError::Shutdown);
            }
            if place.others.is_some_and(|others| self.is_full(others)) {
                return Err(LockError::Overloaded);
            }
            let (at, wheel) = (self.at(now), place.wheel);
            let entered = place.key.enter(number, terms, slot, wheel, at)?;
            Ok((entered, Out::visits(wheel)))
        })
    }

    /// The store has granted the request `number`, which asked. Its share is returned; others may get shares too.
    ///
    /// # Errors
    ///
    /// `Shutdown`: the hold is not kept here, and must be released.
    pub(crate) fn granted(
        &self,
        number: u64,
        held: &Arc<Held>,
        terms: &Terms,
        now: Instant,
    ) -> Result<(Grant, Out), LockError> {
        let granted = self.with(&held.hold.key, |place| {
            let (at, wheel) = (self.at(now), place.wheel);
            place.key.no_more_asking(number);
            if place.closed {
                return Err(LockError::Shutdown);
            }
            let (grant, mut out) = place.key.granted(held, Some(terms), wheel, at);
            out.see(wheel);
            Ok((grant.expect("the request that asked gets a share"), out))
        });
        granted.expect("the key of a request that asks is here")
    }

    /// The store has granted a hold for those who wait. Returns `false` if it fits none of them: it must be released.
    pub(crate) fn given(&self, held: &Arc<Held>, fair: Option<u64>, now: Instant) -> (bool, Out) {
        let given = self.with(&held.hold.key, |place| {
            let (at, wheel) = (self.at(now), place.wheel);
            let (is_taken, mut out) = match place.closed {
                true => return (false, Out::default()),
                false => place.key.given(held, fair, wheel, at),
            };
            out.see(wheel);
            (is_taken, out)
        });
        given.unwrap_or_default()
    }

    /// The request `number` asked the store in vain, and waits now. `until`: when the holder's lease ends, if that is known. `leaves`:
    /// the request has something in the store, with which a task that starts goes on.
    ///
    /// # Errors
    ///
    /// Those of [`enter`](Self::enter), but for one key too many.
    pub(crate) fn refused(
        &self,
        key: &LockKey,
        number: u64,
        terms: &Terms,
        slot: &mut Option<Arc<Slot>>,
        (until, leaves): (Option<Instant>, bool),
        now: Instant,
    ) -> Result<(Entered, Out), LockError> {
        self.insert(key, |place| {
            if place.closed {
                place.key.no_more_asking(number);
                return Err(LockError::Shutdown);
            }
            let (at, wheel) = (self.at(now), place.wheel);
            let news = (until, leaves);
            let (entered, mut out) = place.key.refused(number, terms, slot, news, wheel, at)?;
            out.see(wheel);
            Ok((entered, out))
        })
    }

    /// The task of a contended key was refused, for this request.
    pub(crate) fn line_refused(
        &self,
        key: &LockKey,
        task: &Task,
        until: Option<Instant>,
        now: Instant,
    ) -> Out {
        let refused = self.with(key, |place| place.key.line_refused(task, until, now));
        refused.unwrap_or_default()
    }

    /// The request `number` has asked, and is over.
    pub(crate) fn asked(&self, key: &LockKey, number: u64) -> Out {
        self.with(key, |place| {
            place.key.no_more_asking(number);
            place.key.wake_all()
        })
        .unwrap_or_default()
    }

    /// The request with this ticket is over.
    pub(crate) fn left(&self, key: &LockKey, side: Side, ticket: u64) -> Out {
        let left = self.with(key, |place| place.key.left(side, ticket));
        left.unwrap_or_default()
    }

    /// The first request that waits has the answer `error`.
    pub(crate) fn failed(&self, key: &LockKey, side: Side, ticket: u64, error: LockError) -> Out {
        let failed = self.with(key, |place| place.key.failed(side, ticket, error));
        failed.unwrap_or_default()
    }

    /// The task of a contended key ends early: those who wait have the answer `error`.
    pub(crate) fn abandoned(&self, key: &LockKey, task: &Task, error: &LockError) -> Out {
        let abandoned = self.with(key, |place| place.key.abandoned(task, error));
        abandoned.unwrap_or_default()
    }

    /// A hold stays in the store after its end: it is not handed over.
    pub(crate) fn stay(&self, held: &Arc<Held>) {
        self.with(&held.hold.key, |place| place.key.stay(held));
    }

    /// A share ends. Unless `pass_on`, the hold is not handed over.
    pub(crate) fn ended(
        &self,
        held: &Arc<Held>,
        holder: &Holder,
        pass_on: bool,
        now: Instant,
    ) -> (Ended, Out) {
        let ended = self.with(&held.hold.key, |place| {
            let (at, wheel, later) = (self.at(now), place.wheel, self.releases_later);
            let (ended, mut out) = place.key.ended(held, holder, pass_on, later, wheel, at);
            out.see(wheel);
            (ended, out)
        });
        ended.unwrap_or_else(|| (Ended::Release { awaited: false }, Out::default()))
    }

    /// The store has answered the release of a hold, or will not.
    pub(crate) fn released(&self, held: &Held, released: Released, now: Instant) -> Out {
        let released = self.with(&held.hold.key, |place| {
            place.key.released(held, released, now)
        });
        released.unwrap_or_default()
    }

    /// A hold is lost: no request waits for its shares any more. `None`: it is not here, because its last share has ended.
    pub(crate) fn lost(&self, held: &Arc<Held>) -> Option<Out> {
        self.with(&held.hold.key, |place| place.key.lost(held, place.wheel))
            .flatten()
    }

    /// What a task of a contended key does next. `has_place`: it has something in the store.
    pub(crate) fn next(
        &self,
        key: &LockKey,
        task: &Task,
        has_place: bool,
        now: Instant,
    ) -> (Next, Out) {
        let next = self.with(key, |place| place.key.next(task, has_place, now));
        next.unwrap_or_default()
    }

    /// How many requests wait on one side of a key, behind the one for which the store is asked.
    pub(crate) fn waiting(&self, key: &LockKey, side: Side) -> usize {
        self.read(key, |state| state.waiting(side))
            .unwrap_or_default()
    }

    /// Why a request gives up: when the holder's lease ends. The outer `None`: nothing is known of a holder since `since`.
    pub(crate) fn known(
        &self,
        key: &LockKey,
        mode: LockMode,
        since: Instant,
        now: Instant,
    ) -> Option<Option<Duration>> {
        self.read(key, |state| state.known(mode, since, now))?
    }

    /// Whether a subscription serves the waiters of a key: the process hears the messages of its own releases.
    pub(crate) fn listens(&self, key: &LockKey, side: Side, listens: bool) {
        self.with(key, |place| place.key.listens(side, listens));
    }

    fn at(&self, now: Instant) -> At {
        At {
            now,
            limits: self.limits,
        }
    }
}
