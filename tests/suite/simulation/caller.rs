//! A caller that takes locks.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::{Instant, sleep};
use tower_distributed_lock::{
    LockClient, LockError, LockGuard, LockKey, LockMode, LockRequest, Owner,
};

use super::book::Guarded;
use super::checked_stores::CheckedStores;
use super::log::Log;
use super::plan::{Menu, Plan, What, Who};
use super::waits::Waits;

/// How much longer than its wait an acquisition may take, because of the resolution of timers.
const COARSE: Duration = Duration::from_millis(2);

/// The time limit of a single attempt.
const ONE_TRY: Duration = Duration::from_secs(2);

pub(super) struct Caller {
    pub(super) name: String,
    pub(super) locks: LockClient,
    pub(super) log: Arc<Log>,
    pub(super) checked_stores: Arc<CheckedStores>,
    pub(super) waits: Arc<Waits>,
    pub(super) menu: Menu,
    pub(super) shared: Owner,
    pub(super) random: Rng,
}

/// A guard, and the data of its sections.
pub(super) struct Held {
    pub(super) guard: LockGuard,
    pub(super) owner: u64,
    pub(super) asked: u64,
    pub(super) from: u64,
    pub(super) since: Instant,
    pub(super) max_hold: Option<Duration>,
}

impl Caller {
    pub(super) async fn run(mut self, rounds: usize) {
        for _ in 0..rounds {
            let plan = Plan::draw(self.menu, &mut self.random);
            self.act(&plan).await;
            sleep(Duration::from_millis(self.random.u64(..100))).await;
        }
    }

    async fn act(&mut self, plan: &Plan) {
        let owner = match plan.owner {
            Who::Shared => self.shared.clone(),
            Who::Own | Who::Unnamed => Owner::new(),
        };
        let named = (plan.owner != Who::Unnamed).then_some(&owner);
        let Some(held) = self.take(plan, named, plan.what, plan.mode).await else {
            return;
        };
        let half = plan.work / 2;
        sleep(half).await;
        self.believes(&held.guard);
        if let Some(mode) = plan.nested {
            self.nest(plan, &owner, mode, &held).await;
        }
        sleep(half).await;
        self.end(plan, held).await;
    }

    /// Enters again, and leaves.
    async fn nest(&mut self, plan: &Plan, owner: &Owner, mode: LockMode, outer: &Held) {
        let What::One(key) = plan.what else { return };
        let Some(inner) = self.take(plan, Some(owner), What::One(key), mode).await else {
            return;
        };
        let same = inner.guard.fencing_token() == outer.guard.fencing_token();
        if mode != LockMode::Read && !same && !outer.guard.is_lost() {
            let text = format!("{} has another token inside than outside", self.name);
            self.log.violated("S6", text);
        }
        sleep(plan.work / 4).await;
        self.end(plan, inner).await;
    }

    async fn take(
        &mut self,
        plan: &Plan,
        owner: Option<&Owner>,
        what: What,
        mode: LockMode,
    ) -> Option<Held> {
        let (asked, began) = (self.log.tick(), Instant::now());
        let request = self.request(plan, owner, what, mode);
        self.log
            .note(|| format!("{} asks for {what:?} {mode:?} {plan:?}", self.name));
        let one = match what {
            What::One(key) if !plan.wait.is_zero() => Some(LockKey::new(key)),
            _ => None,
        };
        let waiting = self.waits.wait(one.as_ref());
        let answer = plan.patience.bear(request.acquire()).await;
        let budget = if plan.wait.is_zero() {
            ONE_TRY
        } else {
            plan.wait
        };
        if began.elapsed() > budget + COARSE {
            let text = format!("{} waited {:?}, not {budget:?}", self.name, began.elapsed());
            self.log.violated("L4", text);
        }
        match answer {
            None => {
                self.log.note(|| format!("{} goes away", self.name));
                self.log.count("cancelled");
                None
            }
            Some(Err(error)) => {
                self.log.note(|| format!("{}: {error}", self.name));
                self.log.count("failed");
                if let (LockError::Busy { .. }, Some(key)) = (error, &one) {
                    waiting.in_vain(&self.checked_stores, key);
                }
                None
            }
            Some(Ok(guard)) => {
                drop(waiting);
                Some(self.taken(plan, guard, owner, what, asked))
            }
        }
    }

    fn request(
        &self,
        plan: &Plan,
        owner: Option<&Owner>,
        what: What,
        mode: LockMode,
    ) -> LockRequest {
        let request = match what {
            What::One(key) => self.locks.lock(key),
            What::All(keys) => self.locks.lock_all(keys),
            What::Any(keys) => self.locks.lock_any(keys),
        };
        let request = request.mode(mode).wait(plan.wait).lease(plan.lease);
        let request = match plan.max_hold {
            Some(max_hold) => request.max_hold(max_hold),
            None => request,
        };
        let request = match plan.fenced && mode.is_exclusive() {
            true => request.fenced(),
            false => request,
        };
        match owner {
            Some(owner) => request.owner(owner),
            None => request,
        }
    }

    fn taken(
        &self,
        plan: &Plan,
        guard: LockGuard,
        owner: Option<&Owner>,
        what: What,
        asked: u64,
    ) -> Held {
        let from = self.log.tick();
        self.log.note(|| format!("{} holds {guard:?}", self.name));
        self.log.count("granted");
        let keys: Vec<_> = guard.keys().map(|key| key.as_str().to_owned()).collect();
        let right = match what {
            What::One(key) => keys == [key],
            What::All(wanted) => keys == wanted,
            What::Any(of) => keys.len() == 1 && of.contains(&&*keys[0]),
        };
        if !right {
            let text = format!("{} got {keys:?} for {what:?}", self.name);
            self.log.violated("S8", text);
        }
        if plan.fenced && guard.mode().is_exclusive() && guard.fencing_token().is_none() {
            self.log
                .violated("S6", format!("{} got no token", self.name));
        }
        self.believes(&guard);
        Held {
            guard,
            // A request without an owner has an owner of its own.
            owner: owner.map_or(asked, owner_number),
            asked,
            from,
            since: Instant::now(),
            // A guard that joins a hold of its owner takes the limit of that hold.
            max_hold: plan.max_hold.filter(|_| plan.owner != Who::Shared),
        }
    }

    /// Checks that a grant covers the deadline of a guard that is not lost.
    pub(super) fn believes(&self, guard: &LockGuard) {
        if guard.is_lost() {
            return;
        }
        for key in guard.keys() {
            let at = self.at(guard, key);
            if !self.checked_stores.promised(at, guard.deadline()) {
                let text = format!("{} believes to hold {key} for too long", self.name);
                self.log.violated("S4", text);
            }
        }
    }

    fn at<'a>(&self, guard: &LockGuard, key: &'a LockKey) -> Guarded<'a> {
        Guarded {
            key,
            mode: guard.mode(),
            client: self.locks.id(),
        }
    }
}

/// A number for an owner, different from all ticks.
fn owner_number(owner: &Owner) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    owner.hash(&mut hasher);
    hasher.finish() | 1 << 63
}
