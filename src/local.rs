//! The queue inside the process: one voice per key and side, re-entry, read sharing, hand-over.
//!
//! Every key has three lanes. Callers of the `Reentrant` and of the `Write` lane queue first in, first out, and only the
//! front one talks to the store; when it is done, the hold itself may pass to the next, without the store. When it was
//! passed on often enough, it is released, and whoever heard of that in other processes goes first ([`Courtesy`]). `Read`
//! callers queue behind one of them who asks for all, and enter together. `Fair` callers have their places in the store's
//! queue, so they have no lane. An owner asks for one thing at a time. What the sides of a read-write lock do to each
//! other is the store's business.
//!
//! Nothing here waits for the store or talks to it: it is a map of state machines ([`Entry`]) under mutexes. What leaves
//! it ([`Turn`], [`Share`]) finds its way back when it is dropped, and is never dropped under such a mutex.

use std::collections::hash_map::Entry as Slot;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::LockError;
use crate::keeper::{Keeper, LiveHold};
use crate::lock::{FencingToken, HoldId, KeyMap, Lease, LockKey, LockMode, Owner};
use crate::store::DynStore;
use crate::sync::Mutex;
use crate::telemetry::Route;

mod active;
mod courtesy;
mod entry;
mod lane;
mod share;
mod undecided;

use active::Sharer;
pub(crate) use courtesy::Courtesy;
use entry::{At, Delivery, Entered, Entry};
use lane::Legacy;
pub(crate) use share::{Queued, Share, Turn};

/// How many shards the map has: enough that threads seldom meet, few enough to be cheap to make.
const SHARDS: usize = 16;

/// How far a hold is passed on inside the process before other processes get their turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// How many times in a row.
    pub(crate) handovers: u32,
    /// For how long since its grant.
    pub(crate) handover_time: Duration,
    /// How long after its grant a read hold accepts new readers.
    pub(crate) share_window: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            // The benches' section `pace`: fewer cost throughput, more add little, and no process gets less than its share.
            handovers: 64,
            handover_time: Duration::from_millis(50),
            share_window: Duration::from_millis(5),
        }
    }
}

/// What a caller asks for, as far as it matters to those it shares with.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) mode: LockMode,
    pub(crate) owner: Option<Owner>,
    pub(crate) lease: Lease,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) fenced: bool,
    /// How many may wait in this process for the same key and side; `None`: this caller does not wait.
    pub(crate) max_waiters: Option<usize>,
    /// Where its measurements belong.
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

    /// The same of a caller that does not wait.
    pub(crate) fn impatient(self) -> Self {
        Self {
            max_waiters: None,
            ..self
        }
    }

    /// Whether such a caller may wait behind so many others. `remaining`: of the present hold's lease.
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

/// All that a client's callers hold and wait for in this process.
pub(crate) struct Local {
    keeper: Keeper,
    pace: Pace,
    shards: Box<[Mutex<KeyMap<Entry>>]>,
}

/// The end of queueing.
pub(crate) enum Admission {
    /// A share in a hold that this process has.
    Share(Share),
    /// The turn to ask the store.
    Turn(Turn),
}

/// What a caller that comes in gets.
pub(crate) enum Entrance {
    Admitted(Admission),
    Queued(Queued),
}

impl Local {
    pub(crate) fn new(store: Arc<dyn DynStore>, pace: Pace, renew_on: Option<Handle>) -> Arc<Self> {
        Arc::new_cyclic(|local: &Weak<Self>| {
            let local = local.clone();
            let on_lost = move |live: &Arc<LiveHold>| {
                if let Some(local) = local.upgrade() {
                    local.lost(live);
                }
            };
            Self {
                keeper: Keeper::new(store, renew_on, Box::new(on_lost)),
                pace,
                shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            }
        })
    }

    pub(crate) fn pace(&self) -> Pace {
        self.pace
    }

    pub(crate) fn keeper(&self) -> &Keeper {
        &self.keeper
    }

    /// Joins, or gets the turn to ask, or queues.
    pub(crate) fn enter(
        self: &Arc<Self>,
        key: &LockKey,
        terms: &Terms,
    ) -> Result<Entrance, LockError> {
        let at = self.at();
        let entered = self.with(key, |entry| entry.enter(terms, at))?;
        Ok(match entered {
            Entered::Joined(joined) => {
                Entrance::Admitted(Admission::Share(Share::new(self, joined)))
            }
            Entered::Ask(asker) => {
                let turn = Turn::new(self, key, asker, Legacy::default());
                Entrance::Admitted(Admission::Turn(turn))
            }
            Entered::Queued(ticket, receiver) => {
                Entrance::Queued(Queued::new(self, key, terms.mode, ticket, receiver))
            }
        })
    }

    /// The same for a caller that does not wait in this line. `None`: the key is in use in this process, and `onlooker` is
    /// notified when that may have changed.
    pub(crate) fn look_in(
        self: &Arc<Self>,
        key: &LockKey,
        terms: &Terms,
        onlooker: &Arc<Notify>,
    ) -> Result<Option<Admission>, LockError> {
        let at = self.at();
        let terms = terms.clone().impatient();
        let entered = self.with(key, |entry| match entry.enter(&terms, at) {
            Err(LockError::Busy { .. }) => {
                entry.watch(onlooker);
                Ok(None)
            }
            entered => entered.map(Some),
        })?;
        Ok(match entered {
            Some(Entered::Joined(joined)) => Some(Admission::Share(Share::new(self, joined))),
            Some(Entered::Ask(asker)) => {
                let turn = Turn::new(self, key, asker, Legacy::default());
                Some(Admission::Turn(turn))
            }
            Some(Entered::Queued(..)) | None => None,
        })
    }

    /// A hold was lost while somebody still has a share in it: others need not wait for that share.
    fn lost(self: &Arc<Self>, live: &Arc<LiveHold>) {
        let key = &live.hold.key;
        let delivery = self.with(key, |entry| entry.lost(live));
        self.deliver(key, delivery);
    }

    /// For how long the key will be held yet, unless it is renewed or released, as far as this process knows.
    pub(crate) fn remaining(&self, key: &LockKey, mode: LockMode) -> Option<Duration> {
        let shard = self.shard(key).lock();
        shard.get(key)?.remaining(mode, Instant::now())
    }

    /// How many keys somebody in this process holds or waits for.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Changes the key's state machine; it exists only while somebody holds or waits.
    fn with<T>(&self, key: &LockKey, change: impl FnOnce(&mut Entry) -> T) -> T {
        let mut shard = self.shard(key).lock();
        // One look into the map for all of it: that costs more than cloning the key.
        let mut slot = match shard.entry(key.clone()) {
            Slot::Occupied(slot) => slot,
            Slot::Vacant(slot) => slot.insert_entry(Entry::default()),
        };
        let result = change(slot.get_mut());
        if slot.get().is_idle() {
            slot.remove();
        }
        result
    }

    fn shard(&self, key: &LockKey) -> &Mutex<KeyMap<Entry>> {
        &self.shards[key.place_among(SHARDS)]
    }

    /// Hands out what a state machine decided, outside its mutex. What a waiter is no longer there to take comes back by
    /// being dropped.
    fn deliver(self: &Arc<Self>, key: &LockKey, deliveries: impl IntoIterator<Item = Delivery>) {
        for delivery in deliveries {
            let (waiter, outcome) = match delivery {
                Delivery::Share(waiter, joined) => {
                    (waiter, Ok(Admission::Share(Share::new(self, joined))))
                }
                Delivery::Turn(waiter, asker, legacy) => {
                    let turn = Turn::new(self, key, asker, legacy);
                    (waiter, Ok(Admission::Turn(turn)))
                }
                Delivery::Refusal(waiter, error) => (waiter, Err(error)),
                Delivery::News(onlooker) => {
                    onlooker.notify_one();
                    continue;
                }
                Delivery::Silence(ear) => {
                    drop(ear);
                    continue;
                }
            };
            drop(waiter.sender.send(outcome));
        }
    }

    fn at(&self) -> At {
        At {
            now: Instant::now(),
            pace: self.pace,
        }
    }
}

/// Who asks the store.
#[derive(Debug, Clone)]
struct Asker {
    mode: LockMode,
    owner: Option<Owner>,
    /// It reads under this write hold of its own, and asks with its id.
    nested: Option<HoldId>,
}

/// A share in a live hold, as the state machine describes it.
struct Joined {
    live: Arc<LiveHold>,
    sharer: Sharer,
    token: Option<FencingToken>,
}
