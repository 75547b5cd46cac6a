//! The queue inside the process: one request per key and side (`Read`, or its other modes) asks the store; re-entry, read sharing,
//! hand-over.
//!
//! Every key has four queues. `Reentrant` and `Write` requests queue first in, first out, and only the head of each queue
//! asks the store. When it is done, the hold itself may be handed over to the next request, without the store. After enough
//! hand-overs it is released, and the processes that listen for it go first ([`fairness`]). `Read` requests queue behind
//! one of them that asks for all, and enter together. `Fair` requests have their places in the store's queue, so they have
//! none here. `Permit` requests ask side by side until one is refused, and then take turns ([`permits`]). An owner
//! has one request under way at a time, and its others are in a fifth queue. The store decides between the two sides of a
//! read-write lock.
//!
//! This module does not call the store: it is a map of state machines ([`KeyState`]) under mutexes, one for each shard. A
//! [`Queued`], [`Turn`] or [`Share`] returns to its state machine when it is dropped, and is never dropped under such a
//! mutex. Under a shard's mutex, only that of a [`LiveHold`] is taken, and those of the memory store: see
//! [`Queues::enter_and_ask`].

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::background::Background;
use crate::error::LockError;
use crate::lock::{FencingToken, Hold, Lease, LockKey, LockMode, Owner};
use crate::store::DynStore;
use crate::telemetry::{self, Events, Route};
use crate::watchdog::LiveHold;

mod counts;
mod departed;
mod fairness;
mod handover_limits;
mod hold;
mod intent;
mod key_state;
mod owed_turns;
mod permits;
mod queued;
mod routes;
mod shards;
mod share;
mod shares;
mod turn;
mod view;
mod wait_queue;

pub(crate) use departed::ShareRelease;
pub(crate) use handover_limits::HandoverLimits;
use hold::LocalHolder;
use intent::Intent;
use key_state::{KeyState, Placement};
pub(crate) use queued::Queued;
use shards::Shards;
pub(crate) use share::Share;
pub(crate) use shares::{Shares, SharesOfMany};
pub(crate) use turn::Turn;
pub(crate) use view::{HoldView, KeyView, WaiterView};
use wait_queue::{Handoff, LocalWaiter, Others};

/// The terms of a request that decide whether it can share a hold.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) mode: LockMode,
    pub(crate) owner: Option<Owner>,
    pub(crate) lease: Lease,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) fenced: bool,
    /// The largest number of waiters in this process for the same key and side; `None`: this request does not wait.
    pub(crate) max_waiters: Option<usize>,
    /// The route of its measurements.
    pub(crate) route: Route,
}

impl Terms {
    /// The same in another mode.
    pub(crate) fn in_mode(&self, mode: LockMode) -> Cow<'_, Self> {
        match mode == self.mode {
            true => Cow::Borrowed(self),
            false => Cow::Owned(Self {
                mode,
                ..self.clone()
            }),
        }
    }

    /// The same for a request that does not wait.
    pub(crate) fn impatient(self) -> Self {
        Self {
            max_waiters: None,
            ..self
        }
    }

    /// The hold that the store granted for `lease` when it was asked at `sent`.
    pub(crate) fn live(
        &self,
        hold: Hold,
        lease: Duration,
        token: Option<FencingToken>,
        sent: Instant,
    ) -> Arc<LiveHold> {
        let mut live = LiveHold::new(hold, self.lease, token, sent, lease);
        live.route = self.route.clone();
        Arc::new(live)
    }

    /// The lease to ask for: it is cut at the longest hold.
    pub(crate) fn granted_lease(&self) -> Duration {
        let lease = self.lease.duration();
        self.max_hold.map_or(lease, |max_hold| lease.min(max_hold))
    }

    fn is_of(&self, owner: &Owner) -> bool {
        self.owner.as_ref() == Some(owner)
    }

    /// Whether such a request yields to other processes. One that does not wait asks at once.
    fn yields(&self) -> bool {
        self.max_waiters.is_some() && self.mode.is_handed_over()
    }

    /// Whether such a request may wait behind `others` requests. `remaining`: the rest of the present hold's lease.
    #[cold]
    fn wait_behind(&self, others: usize, remaining: Option<Duration>) -> Result<(), LockError> {
        match self.max_waiters {
            None => Err(LockError::Busy {
                retry_after: remaining,
            }),
            Some(most) if others >= most => Err(LockError::Overloaded),
            Some(_) => Ok(()),
        }
    }
}

/// The holds and the waiting requests of a client in this process.
pub(crate) struct Queues {
    background: Background,
    handover_limits: HandoverLimits,
    /// Whether the store answers each question when it is asked.
    at_once: bool,
    shards: Shards,
}

/// The decision about a request: on arrival, or at the end of its wait.
pub(crate) enum Decision {
    /// A share in a hold that this process has.
    Grant(Share),
    /// The turn to ask the store.
    Ask(Turn),
    /// A place in the queue, on arrival only.
    Wait(Queued),
}

impl Queues {
    pub(crate) fn new(
        store: Arc<dyn DynStore>,
        handover_limits: HandoverLimits,
        max_keys: usize,
        renew_on: Option<Handle>,
        events: Events,
    ) -> Arc<Self> {
        Arc::new_cyclic(|queues: &Weak<Self>| {
            let queues = queues.clone();
            let on_lost = move |live: &Arc<LiveHold>| {
                if let Some(queues) = queues.upgrade() {
                    queues.lost(live);
                }
            };
            Self {
                at_once: store.answers_at_once(),
                background: Background::new(store, renew_on, events, Box::new(on_lost)),
                handover_limits,
                shards: Shards::new(max_keys),
            }
        })
    }

    pub(crate) fn handover_limits(&self) -> HandoverLimits {
        self.handover_limits
    }

    pub(crate) fn background(&self) -> &Background {
        &self.background
    }

    /// Joins a hold, or gets the turn to ask, or queues.
    ///
    /// # Errors
    ///
    /// `Busy` for a request that does not wait, and `Overloaded` for one too many, also if there is one key too many;
    /// `Lost`, `Upgrade` and `Invalid` because of the owner's own holds.
    pub(crate) fn enter(
        self: &Arc<Self>,
        key: &LockKey,
        terms: &Terms,
        now: Instant,
    ) -> Result<Decision, LockError> {
        self.enter_and_ask(key, terms, now, None::<fn() -> _>)
    }

    /// The same. In a store that answers at once, a request that gets the turn asks by `ask`, under the mutex of the shard: a
    /// grant is a hold and its time.
    ///
    /// So an uncontended key has one transition, from idle to held, and no other request sees it between the two. `ask` runs no
    /// code outside this crate and takes no mutex that is held while a shard's is taken: those of the memory store are held for
    /// its own operations only. A nested read asks after the mutex is unlocked.
    pub(crate) fn enter_and_ask(
        self: &Arc<Self>,
        key: &LockKey,
        terms: &Terms,
        now: Instant,
        ask: Option<impl FnOnce() -> Option<(Arc<LiveHold>, Instant)>>,
    ) -> Result<Decision, LockError> {
        let at = self.at(now);
        let entered = self.shards.enter(key, |state, owed| {
            let decision = match state.place(terms, at)? {
                Placement::Grant(grant) => Decision::Grant(Share::new(self, grant)),
                Placement::Ask(intent) => {
                    if let Some(ask) = ask.filter(|_| intent.nested.is_none())
                        && let Some((live, now)) = ask()
                    {
                        // Decided in this transition, so its owner is not listed.
                        let at = At { now, ..at };
                        return Ok(Err(state.granted(live, terms, &intent, None, at)));
                    }
                    state.begin(&intent.owner);
                    let owed = terms.yields().then(|| owed.take(key, now)).flatten();
                    let handoff = Handoff {
                        others: owed.map_or(Others::Unknown, Others::Owed),
                        ..Handoff::default()
                    };
                    Decision::Ask(Turn::new(self, key, intent, handoff))
                }
                waiting => {
                    let (ticket, outcome) = state.wait(waiting, terms, at);
                    Decision::Wait(Queued {
                        queues: self.clone(),
                        key: key.clone(),
                        mode: terms.mode,
                        ticket,
                        since: now,
                        outcome,
                    })
                }
            };
            Ok(Ok(decision))
        });
        let decision = match entered.inspect_err(|_| self.background.start_stranded())? {
            Ok(decision) => decision,
            Err((grant, effects)) => return Ok(Decision::Grant(self.begin(key, grant, effects))),
        };
        match &decision {
            // The mutex is unlocked: a share may have extended the limit of its hold.
            Decision::Grant(share) => self.background.shared(share.live()),
            Decision::Wait(_) => self.background.start_stranded(),
            Decision::Ask(_) => {}
        }
        Ok(decision)
    }

    /// A hold begins. The watchdog gets it only when the state machine knows it, because it may be lost at once.
    fn begin(self: &Arc<Self>, key: &LockKey, grant: NewShare, effects: Vec<Effect>) -> Share {
        // If a waker of another request panics, it releases the hold.
        let share = Share::new(self, grant);
        self.background.keep(share.live());
        self.apply(key, effects);
        share
    }

    /// A shared hold was lost: other requests do not wait for its shares any more.
    fn lost(self: &Arc<Self>, live: &Arc<LiveHold>) {
        let key = &live.hold.key;
        let at = self.at(Instant::now());
        let effects = self.with(key, |state| state.lost(live, at));
        self.apply(key, effects);
    }

    /// How many requests for `key` in `mode` wait in this process.
    pub(crate) fn waiting(&self, key: &LockKey, mode: LockMode) -> usize {
        let waiting = |state: &KeyState| state.waiting(mode);
        self.shards.look(key, waiting).unwrap_or_default()
    }

    /// The number of keys that requests of this process hold or wait for.
    pub(crate) fn len(&self) -> usize {
        self.shards.len()
    }

    /// Changes the state of a key.
    fn with<T>(&self, key: &LockKey, change: impl FnOnce(&mut KeyState) -> T) -> T {
        self.shards.with(key, change)
    }

    /// Executes the effects of a transition, outside the mutex. If a waiter was dropped meanwhile, its grant returns by
    /// being dropped. A waker of a waiter is code outside this crate: one that panics is logged, and passed over.
    fn apply(self: &Arc<Self>, key: &LockKey, effects: Vec<Effect>) {
        if effects.is_empty() {
            return;
        }
        for effect in effects {
            let execute = AssertUnwindSafe(|| self.execute(key, effect));
            if let Err(panic) = catch_unwind(execute) {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                tracing::error!(panic = text, "the waker of a request panicked");
            }
        }
    }

    fn execute(self: &Arc<Self>, key: &LockKey, effect: Effect) {
        let (waiter, outcome) = match effect {
            Effect::Grant(waiter, grant) => {
                let handed_over = grant.handed_over;
                let share = Share::new(self, grant);
                if handed_over {
                    telemetry::handed_over(&waiter.terms.route, share.live().hold.mode);
                }
                self.background.shared(share.live());
                (waiter, Ok(Decision::Grant(share)))
            }
            Effect::Ask(waiter, intent, handoff) => {
                let turn = Turn::new(self, key, intent, handoff);
                (waiter, Ok(Decision::Ask(turn)))
            }
            Effect::Refuse(waiter, error) => (waiter, Err(error)),
            Effect::Unused(handoff) => {
                drop(handoff.wakeups);
                if let Others::Owed(fairness) = handoff.others {
                    self.shards.owe(key, fairness, Instant::now());
                }
                return;
            }
        };
        drop(waiter.sender.send(outcome));
    }

    fn at(&self, now: Instant) -> At {
        At {
            now,
            handover_limits: self.handover_limits,
            at_once: self.at_once,
        }
    }
}

/// The circumstances of a decision.
#[derive(Debug, Clone, Copy)]
struct At {
    now: Instant,
    handover_limits: HandoverLimits,
    /// [`Queues::at_once`].
    at_once: bool,
}

/// An effect of a transition.
enum Effect {
    Grant(LocalWaiter, NewShare),
    Ask(LocalWaiter, Intent, Handoff),
    Refuse(LocalWaiter, LockError),
    /// No request takes over what a head leaves. Drops its subscription, and keeps the turns that are owed to other processes for
    /// the next request.
    Unused(Handoff),
}

/// A share in a live hold, as the state machine describes it.
struct NewShare {
    live: Arc<LiveHold>,
    holder: LocalHolder,
    /// Whether the hold was passed from the request before, without the store.
    handed_over: bool,
}
