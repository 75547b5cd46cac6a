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

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::LockError;
use crate::hold::Held;
use crate::lock::{KeyMap, Lease, LockKey, LockMode, Owner};
use crate::store::Released;
use crate::sync::{Mutex, MutexGuard};
use crate::telemetry::Route;

mod counts;
mod key;
mod line;
mod shared;
mod slot;
mod snapshot;
#[cfg(test)]
mod tests;
mod wheel;

pub(crate) use key::Entered;
use key::Key;
pub(crate) use line::{Next, Side};
pub(crate) use slot::{Slot, Taken};
pub(crate) use snapshot::{HoldView, KeyView, WaiterView};
use wheel::Wheel;

/// The number of shards, each with a mutex of its own.
pub(crate) const SHARDS: usize = 16;

/// With fewer keys, each request counts them exactly.
const MANY: usize = 64 * SHARDS;

/// A map with fewer keys keeps its memory.
const SMALL: usize = 256;

/// The terms of a request, which decide whether it can share a hold.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) mode: LockMode,
    pub(crate) owner: Option<Owner>,
    pub(crate) lease: Lease,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) fenced: bool,
    /// How many requests of this process may wait for the same side of a key; `None`: this one does not wait.
    pub(crate) max_waiters: Option<usize>,
    /// How long it waits in all.
    pub(crate) wait: Duration,
    /// The route of its measurements.
    pub(crate) route: Route,
}

impl Terms {
    /// The same in another mode.
    pub(crate) fn in_mode(&self, mode: LockMode) -> Self {
        Self {
            mode,
            ..self.clone()
        }
    }

    /// The lease to ask for: it is cut at the longest hold.
    pub(crate) fn granted_lease(&self) -> Duration {
        let lease = self.lease.duration();
        self.max_hold.map_or(lease, |max_hold| lease.min(max_hold))
    }

    /// Whether the grant needs a fencing token.
    pub(crate) fn needs_token(&self) -> bool {
        self.fenced && self.mode.is_exclusive()
    }
}

/// The limits of hand-overs inside the process, before other processes get their turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HandoverLimits {
    /// How many times in a row.
    pub(crate) handovers: u32,
    /// For how long since its grant.
    pub(crate) handover_time: Duration,
    /// How long after its grant a read hold accepts new readers.
    pub(crate) share_window: Duration,
}

impl Default for HandoverLimits {
    fn default() -> Self {
        Self {
            // The benches' section `pace`: fewer cost throughput, more add little, and with 64 every process gets its share.
            handovers: 64,
            handover_time: Duration::from_millis(50),
            share_window: Duration::from_millis(5),
        }
    }
}

/// A share in a hold, as data: the caller that gets it must end it.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) held: Arc<Held>,
    pub(crate) holder: Holder,
    /// Whether the hold was passed from the request before, without the store.
    pub(crate) handed_over: bool,
}

/// Whose share it is, and when its longest hold is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) owner: Option<Owner>,
    pub(crate) limit: Option<Instant>,
}

/// The effects of an event, executed after the mutex is unlocked.
#[derive(Debug, Default)]
pub(crate) struct Out {
    /// Requests that get their answer. A grant that is not taken is ended.
    pub(crate) tell: SmallVec<[Told; 1]>,
    /// Grants that no request has taken for too long: they are ended.
    pub(crate) untaken: SmallVec<[Grant; 1]>,
    /// Tasks that have something to do.
    pub(crate) wake: SmallVec<[Arc<Notify>; 2]>,
    /// When the keeper must visit a hold that it did not know.
    pub(crate) visit: Option<Instant>,
    /// The same event comes again after this time: others ask first.
    pub(crate) later: Option<Duration>,
}

/// The answer to a request that waits.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) slot: Arc<Slot>,
    pub(crate) ticket: u64,
    pub(crate) answer: Result<Grant, LockError>,
}

/// What becomes of a hold when a share ends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Others share it, or it has passed to the next request: the store is asked whether it carries it.
    GoesOn,
    /// It must be released in the store. `awaited`: then that is an event for this process.
    Release { awaited: bool },
}

/// The table of a client.
pub(crate) struct Table {
    shards: [TableShard; SHARDS],
    pub(crate) limits: HandoverLimits,
    max_keys: usize,
    /// Whether a release is an event of its own: a store answers it later, and a request that asks before is refused.
    releases_later: bool,
}

#[derive(Default)]
struct TableShard {
    state: Mutex<Shard>,
    /// How many keys there are. It is written under the mutex, and read without it.
    len: AtomicUsize,
}

/// The keys of one shard, and its part of the wheel of renewals. Nothing but the mutexes of holds and slots is taken under its mutex.
#[derive(Default)]
pub(crate) struct Shard {
    keys: KeyMap<Key>,
    pub(crate) wheel: Wheel,
    /// The client was shut down: nothing is granted any more.
    closed: bool,
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
        self.change(key, true, |shard, is_new| {
            if shard.closed {
                return Err(LockError::Shutdown);
            }
            let others = shard.keys.len() - usize::from(is_new);
            if is_new && self.is_full(others) {
                return Err(LockError::Overloaded);
            }
            let at = self.at(now);
            let Shard { keys, wheel, .. } = shard;
            let state = keys.get_mut(key).expect("it was inserted");
            let entered = state.enter(number, terms, slot, wheel, at)?;
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
        let key = &held.hold.key;
        self.change(key, true, |shard, _| {
            let at = self.at(now);
            let closed = shard.closed;
            let Shard { keys, wheel, .. } = shard;
            let state = keys.get_mut(key).expect("it was inserted");
            state.no_more_asking(number);
            if closed {
                return Err(LockError::Shutdown);
            }
            let (grant, mut out) = state.granted(held, Some(terms), wheel, at);
            out.see(wheel);
            Ok((grant.expect("the request that asked gets a share"), out))
        })
    }

    /// The store has granted a hold for those who wait. Returns `false` if it fits none of them: it must be released.
    pub(crate) fn given(&self, held: &Arc<Held>, fair: Option<u64>, now: Instant) -> (bool, Out) {
        self.change(&held.hold.key, false, |shard, _| {
            let at = self.at(now);
            let Shard {
                keys,
                wheel,
                closed,
            } = shard;
            let state = keys.get_mut(&held.hold.key).filter(|_| !*closed);
            let Some(state) = state else {
                return (false, Out::default());
            };
            let (is_taken, mut out) = state.given(held, fair, wheel, at);
            out.see(wheel);
            (is_taken, out)
        })
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
        self.change(key, true, |shard, _| {
            let closed = shard.closed;
            let Shard { keys, wheel, .. } = shard;
            let state = keys.get_mut(key).expect("it was inserted");
            if closed {
                state.no_more_asking(number);
                return Err(LockError::Shutdown);
            }
            let at = self.at(now);
            let (entered, mut out) = state.refused(number, terms, slot, (until, leaves), wheel, at)?;
            out.see(wheel);
            Ok((entered, out))
        })
    }

    /// The task of a contended key was refused.
    pub(crate) fn line_refused(&self, key: &LockKey, side: Side, until: Instant, now: Instant) {
        self.with(key, |state, _| state.news(side, now, Some(until)));
    }

    /// The request `number` has asked, and is over.
    pub(crate) fn asked(&self, key: &LockKey, number: u64) -> Out {
        self.with(key, |state, _| {
            state.no_more_asking(number);
            state.wake_all()
        })
        .unwrap_or_default()
    }

    /// The request with this ticket is over.
    pub(crate) fn left(&self, key: &LockKey, side: Side, ticket: u64) -> Out {
        let left = self.with(key, |state, _| state.left(side, ticket));
        left.unwrap_or_default()
    }

    /// The first request that waits has the answer `error`.
    pub(crate) fn failed(&self, key: &LockKey, side: Side, ticket: u64, error: LockError) -> Out {
        let failed = self.with(key, |state, _| state.failed(side, ticket, error));
        failed.unwrap_or_default()
    }

    /// The task of a contended key ends early: those who wait have the answer `error`.
    pub(crate) fn abandoned(
        &self,
        key: &LockKey,
        side: Side,
        fair: Option<u64>,
        work: &Arc<Notify>,
        error: &LockError,
    ) -> Out {
        let abandoned = self.with(key, |state, _| state.abandoned(side, fair, work, error));
        abandoned.unwrap_or_default()
    }

    /// A hold stays in the store after its end: it is not handed over.
    pub(crate) fn stay(&self, held: &Arc<Held>) {
        self.with(&held.hold.key, |state, _| state.stay(held));
    }

    /// A share ends. Unless `pass_on`, the hold is not handed over.
    pub(crate) fn ended(
        &self,
        held: &Arc<Held>,
        holder: &Holder,
        pass_on: bool,
        now: Instant,
    ) -> (Ended, Out) {
        self.change(&held.hold.key, false, |shard, _| {
            let at = self.at(now);
            let Shard { keys, wheel, .. } = shard;
            let Some(state) = keys.get_mut(&held.hold.key) else {
                return (Ended::Release { awaited: false }, Out::default());
            };
            let (ended, mut out) =
                state.ended(held, holder, pass_on, self.releases_later, wheel, at);
            out.see(wheel);
            (ended, out)
        })
    }

    /// The store has answered the release of a hold, or will not.
    pub(crate) fn released(&self, held: &Held, released: Released) -> Out {
        let released = self.with(&held.hold.key, |state, _| state.released(held, released));
        released.unwrap_or_default()
    }

    /// A hold is lost: no request waits for its shares any more. `None`: it is not here, because its last share has ended.
    pub(crate) fn lost(&self, held: &Arc<Held>) -> Option<Out> {
        self.with(&held.hold.key, |state, wheel| state.lost(held, wheel))
            .flatten()
    }

    /// What the task of a contended key does next, or that of one ticket in a fair queue.
    pub(crate) fn next(
        &self,
        key: &LockKey,
        side: Side,
        fair: Option<u64>,
        work: &Arc<Notify>,
        now: Instant,
    ) -> (Next, Out) {
        let next = self.with(key, |state, _| state.next(side, fair, work, now));
        next.unwrap_or_default()
    }

    /// How many requests wait on one side of a key, behind the one for which the store is asked.
    pub(crate) fn waiting(&self, key: &LockKey, side: Side) -> usize {
        self.read(key, |state| state.waiting(side)).unwrap_or_default()
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
        self.with(key, |state, _| state.listens(side, listens));
    }

    /// Nothing is granted any more. Returns all holds, and tells all requests that wait.
    pub(crate) fn close(&self) -> (Vec<Arc<Held>>, Vec<Out>) {
        let (mut holds, mut outs) = (Vec::new(), Vec::new());
        for shard in &self.shards {
            let mut state = shard.state.lock();
            state.closed = true;
            for key in state.keys.values_mut() {
                holds.extend(key.holds().map(|shared| shared.held.clone()));
                outs.push(key.closed());
            }
        }
        (holds, outs)
    }

    /// Refuses all requests that wait and that come. Holds go on.
    pub(crate) fn refuse_all(&self) -> Vec<Out> {
        let mut outs = Vec::new();
        for shard in &self.shards {
            let mut state = shard.state.lock();
            state.closed = true;
            outs.extend(state.keys.values_mut().map(Key::closed));
        }
        outs
    }

    /// The number of keys that requests of this process hold or wait for.
    pub(crate) fn len(&self) -> usize {
        let lens = self.shards.iter();
        lens.map(|shard| shard.len.load(Ordering::Relaxed)).sum()
    }

    /// One shard, for the keeper.
    pub(crate) fn shard(&self, index: usize) -> MutexGuard<'_, Shard> {
        self.shards[index].state.lock()
    }

    /// That of a key.
    pub(crate) fn shard_of(&self, key: &LockKey) -> MutexGuard<'_, Shard> {
        self.shard(key.place_among(SHARDS))
    }

    fn at(&self, now: Instant) -> At {
        At {
            now,
            limits: self.limits,
        }
    }

    /// Whether a shard with `others` keys has no room for one more.
    fn is_full(&self, others: usize) -> bool {
        // Keys are distributed at random: with many keys, no shard has less than half of its part when the map is full.
        let is_sparse = self.max_keys >= MANY && others < self.max_keys / SHARDS / 2;
        !is_sparse && self.len() >= self.max_keys
    }

    fn read<T>(&self, key: &LockKey, read: impl FnOnce(&Key) -> T) -> Option<T> {
        self.shard_of(key).keys.get(key).map(read)
    }

    /// Changes a key that is in use.
    fn with<T>(&self, key: &LockKey, change: impl FnOnce(&mut Key, &mut Wheel) -> T) -> Option<T> {
        self.change(key, false, |shard, _| {
            let Shard { keys, wheel, .. } = shard;
            Some(change(keys.get_mut(key)?, wheel))
        })
    }

    /// Changes a shard, and forgets the key if it is idle then. `inserts` it first; then `change` gets whether it is new.
    fn change<T>(
        &self,
        key: &LockKey,
        inserts: bool,
        change: impl FnOnce(&mut Shard, bool) -> T,
    ) -> T {
        let shard = &self.shards[key.place_among(SHARDS)];
        let mut state = shard.state.lock();
        let is_new = inserts
            && match state.keys.entry(key.clone()) {
                Entry::Occupied(_) => false,
                Entry::Vacant(vacant) => {
                    vacant.insert(Key::default());
                    true
                }
            };
        let result = change(&mut state, is_new);
        let keys = &mut state.keys;
        if keys.get(key).is_some_and(Key::is_idle) {
            keys.remove(key);
            // Frees the memory after many keys have left. It runs rarely, so that its cost stays below that of the keys.
            if keys.capacity() > SMALL && keys.len() < keys.capacity() / 8 {
                keys.shrink_to((keys.len() * 2).max(SMALL / 2));
            }
        }
        shard.len.store(keys.len(), Ordering::Relaxed);
        result
    }
}

impl Out {
    fn visits(wheel: &mut Wheel) -> Self {
        let mut out = Self::default();
        out.see(wheel);
        out
    }

    /// Takes the time of an earlier visit from the wheel.
    fn see(&mut self, wheel: &mut Wheel) {
        self.visit = wheel.take_earlier();
    }

    fn tell(&mut self, slot: Arc<Slot>, ticket: u64, answer: Result<Grant, LockError>) {
        self.tell.push(Told {
            slot,
            ticket,
            answer,
        });
    }
}
