//! The next request of a task.

use std::time::Duration;

use tower_distributed_lock::{Lease, LockMode, LockRequest};

use crate::work::Task;

/// A request with drawn settings.
pub(crate) struct Wish {
    pub(crate) request: LockRequest,
    pub(crate) mode: LockMode,
    pub(crate) owner: u64,
    pub(crate) key: Option<String>,
    pub(crate) wait: Duration,
    pub(crate) max_hold: Option<Duration>,
}

impl Task {
    /// Draws a request.
    pub(crate) fn wish(&mut self) -> Wish {
        let random = &mut self.random;
        let kind = match random.u8(..5) {
            0..2 => "shared",
            2 if self.habits.permits => "permit",
            _ => "exclusive",
        };
        // Low numbers are more frequent, so that some keys are contended.
        let n = random.usize(..self.habits.keys) * random.usize(..2);
        let name = |n: usize| format!("{kind}:{n}");
        let mode = match (kind, random.u8(..10)) {
            ("shared", 0..6) => LockMode::Read,
            ("shared", _) => LockMode::Write,
            ("permit", _) => LockMode::permits(1),
            (_, 0..5) if self.habits.ordered => LockMode::Fair,
            _ => LockMode::Reentrant,
        };
        let all = || (0..self.habits.keys).map(name);
        let (request, key) = match random.u8(..12) {
            0 => (self.locks.lock_all(all()), None),
            1 => (self.locks.lock_any(all()), None),
            _ => (self.locks.lock(name(n)), Some(name(n))),
        };
        let wait = [0, 100, 2_000, 20_000][random.usize(..4)];
        let wait = Duration::from_millis(wait);
        let lease = self.habits.lease();
        let lease = match random.u8(..8) {
            0 => Lease::Fixed(lease),
            _ => Lease::Renewed(lease),
        };
        let max_hold = (random.u8(..16) == 0).then(|| Duration::from_millis(random.u64(20..1_000)));
        let mut request = request.mode(mode).wait(wait).lease(lease);
        if let Some(max_hold) = max_hold {
            request = request.max_hold(max_hold);
        }
        if self.habits.ordered && mode.is_exclusive() && random.u8(..3) == 0 {
            request = request.fenced();
        }
        let mut owner = self.number();
        let mut limit = max_hold;
        if key.is_some() && self.random.u8(..5) == 0 {
            request = request.owner(&self.shared.0);
            owner = self.shared.1;
            // It may join a hold of its owner, and takes the limit of that hold.
            limit = None;
        }
        Wish {
            request,
            mode,
            owner,
            key,
            wait,
            max_hold: limit,
        }
    }
}
