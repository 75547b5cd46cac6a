//! A view of the queues for a console. It is read on demand, and nothing is kept for it.

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
    /// The number of holds of this process in the store. Readers may have several.
    pub(crate) holds: usize,
    /// The oldest of them.
    pub(crate) hold: Option<HoldView>,
    /// The number of requests that wait in this process, without those that ask the store.
    pub(crate) waiters: usize,
    /// When the first of them arrived.
    pub(crate) first_waiter: Option<Instant>,
    /// The name of the mode that requests ask the store for, or wait in.
    pub(crate) wanted: Option<&'static str>,
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
    /// When the store granted it.
    pub(crate) granted: Instant,
    pub(crate) lease: Lease,
    pub(crate) deadline: Instant,
    pub(crate) renewals: u32,
    /// The number of hand-overs inside the process.
    pub(crate) handovers: u32,
    /// The number of guards that share it.
    pub(crate) shares: usize,
    pub(crate) token: Option<FencingToken>,
    /// `held`, `releasing` or `lost`.
    pub(crate) state: &'static str,
}

/// One request that waits in this process.
#[derive(Debug, Clone)]
pub(crate) struct WaiterView {
    pub(crate) mode: LockMode,
    pub(crate) route: Route,
    pub(crate) since: Instant,
}

impl Queues {
    /// Every key that is in use, in no particular order. Each is read at a slightly different instant.
    pub(crate) fn view(&self) -> Vec<KeyView> {
        let mut keys = Vec::with_capacity(self.len());
        self.shards
            .look_at_all(|key, state| keys.push(view(key, state)));
        keys
    }

    /// The holds of one key, with its name space, and the requests that wait for it in this process and do not ask the store, in the
    /// order of their arrival.
    pub(crate) fn view_of(&self, key: &LockKey) -> (Vec<HoldView>, Vec<WaiterView>) {
        let seen = self.shards.look(key, |state| {
            let mut waiters: Vec<_> = state.waiters().collect();
            waiters.sort_by_key(|waiter| waiter.ticket);
            let waiters = waiters.into_iter().map(WaiterView::from);
            (state.holds().map(hold).collect(), waiters.collect())
        });
        seen.unwrap_or_default()
    }
}

fn view(key: &LockKey, state: &KeyState) -> KeyView {
    let oldest = state.holds().min_by_key(|hold| hold.granted());
    let first_waiter = state.waiters().map(|waiter| waiter.since).min();
    KeyView {
        key: key.clone(),
        holds: state.holds().count(),
        hold: oldest.map(hold),
        waiters: state.waiters().count(),
        first_waiter,
        wanted: wanted(state),
    }
}

fn hold(hold: &LocalHold) -> HoldView {
    let live = &hold.live;
    HoldView {
        id: live.hold.id,
        mode: live.hold.mode,
        route: hold.route().clone(),
        since: hold.since(),
        granted: hold.granted().into(),
        lease: live.lease(),
        deadline: live.deadline(),
        renewals: live.renewals(),
        handovers: hold.handovers(),
        shares: hold.shares(),
        token: live.token(),
        state: match live.phase() {
            _ if live.is_lost() => "lost",
            Phase::Held => "held",
            Phase::Releasing | Phase::Released => "releasing",
            Phase::Lost => "lost",
        },
    }
}

fn wanted(state: &KeyState) -> Option<&'static str> {
    let queued = state.waiters().next().map(|waiter| waiter.terms.mode);
    queued.or_else(|| state.asks()).map(LockMode::as_str)
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
