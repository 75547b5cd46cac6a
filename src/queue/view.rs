//! A view of the queues, for a snapshot. It is read on demand, and nothing is kept for it.

use tokio::time::Instant;

use super::Queues;
use super::hold::LocalHold;
use super::key_state::KeyState;
use super::wait_queue::LocalWaiter;
use crate::lock::{FencingToken, HoldId, Lease, LockKey, LockMode};
use crate::telemetry::Route;
use crate::watchdog::Phase;

/// One key that requests of this process hold or wait for.
#[derive(Debug, Clone)]
pub(crate) struct KeyView {
    pub(crate) key: LockKey,
    pub(crate) holds: Vec<HoldView>,
    /// The requests that wait in this process, without those that ask the store, in the order of their arrival.
    pub(crate) waiters: Vec<WaiterView>,
}

/// One hold of this process.
#[derive(Debug, Clone)]
pub(crate) struct HoldView {
    pub(crate) id: HoldId,
    pub(crate) mode: LockMode,
    /// The route of the present holder.
    pub(crate) route: Route,
    /// When the present holder got it.
    pub(crate) since: Instant,
    pub(crate) lease: Lease,
    pub(crate) deadline: Instant,
    /// The number of guards that share it.
    pub(crate) guards: usize,
    pub(crate) token: Option<FencingToken>,
    pub(crate) phase: Phase,
}

/// One request that waits.
#[derive(Debug, Clone)]
pub(crate) struct WaiterView {
    pub(crate) mode: LockMode,
    pub(crate) route: Route,
    pub(crate) since: Instant,
}

impl Queues {
    /// The keys that are in use, a page at a time, in no particular order; `None` after the last page.
    pub(crate) fn view(&self, page: usize) -> Option<Vec<KeyView>> {
        self.shards.look_at_page(page, view)
    }

    /// One key, with its name space.
    pub(crate) fn view_of(&self, key: &LockKey) -> Option<KeyView> {
        self.shards.look(key, |state| view(key, state))
    }
}

fn view(key: &LockKey, state: &KeyState) -> KeyView {
    let mut waiters: Vec<_> = state.waiters().collect();
    waiters.sort_by_key(|waiter| waiter.ticket);
    KeyView {
        key: key.clone(),
        holds: state.holds().map(hold).collect(),
        waiters: waiters.into_iter().map(WaiterView::from).collect(),
    }
}

fn hold(hold: &LocalHold) -> HoldView {
    let live = &hold.live;
    HoldView {
        id: live.hold.id,
        mode: live.hold.mode,
        route: hold.route().clone(),
        since: hold.since(),
        lease: live.lease(),
        deadline: live.deadline(),
        guards: hold.shares(),
        token: live.token(),
        phase: match live.is_lost() {
            true => Phase::Lost,
            false => live.phase(),
        },
    }
}

impl From<&LocalWaiter> for WaiterView {
    fn from(waiter: &LocalWaiter) -> Self {
        Self {
            mode: waiter.terms.mode,
            route: waiter.terms.route.clone(),
            since: waiter.since,
        }
    }
}
