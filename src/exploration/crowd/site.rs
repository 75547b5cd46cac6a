//! What the lock protects.

use super::Plan;
use crate::guard::LockGuard;
use crate::lock::LockMode;

/// The place that the lock protects, and the record of all visits.
#[derive(Default)]
pub(super) struct Site {
    now: u64,
    here: Vec<usize>,
    visits: Vec<Visit>,
    /// The requests that were dropped while they waited: of which client, and when.
    dropped: Vec<(usize, u64)>,
    last_token: u64,
}

#[derive(Debug, Clone)]
struct Visit {
    client: usize,
    mode: LockMode,
    /// A time before the request, and a time at which it was certainly in the queue.
    asked: (u64, u64),
    came: u64,
    went: u64,
    /// The release said that the lock was held until then.
    confirmed: bool,
}

impl Site {
    pub(super) fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    pub(super) fn come(
        &mut self,
        plan: Plan,
        client: usize,
        asked: (u64, u64),
        guard: &LockGuard,
    ) -> usize {
        let came = self.tick();
        let mode = guard.mode();
        if let Some(token) = guard.fencing_token() {
            // After a theft, the resource refuses tokens that are older than the latest it has seen.
            let rises = token.value() > self.last_token;
            assert!(rises || plan.thefts, "a token did not rise");
            self.last_token = token.value();
        }
        let crowded = self
            .here
            .iter()
            .any(|&other| mode != LockMode::Read || self.visits[other].mode != LockMode::Read);
        assert!(!crowded || plan.thefts || plan.naps, "two at once");
        self.visits.push(Visit {
            client,
            mode,
            asked,
            came,
            went: u64::MAX,
            confirmed: false,
        });
        self.here.push(self.visits.len() - 1);
        self.visits.len() - 1
    }

    pub(super) fn go(&mut self, visit: usize) {
        self.visits[visit].went = self.tick();
        self.here.retain(|&other| other != visit);
    }

    /// A request of this client was dropped.
    pub(super) fn give_up(&mut self, client: usize) {
        let now = self.tick();
        self.dropped.push((client, now));
    }

    /// The release of a visit said that the lock was held until then.
    pub(super) fn confirm(&mut self, visit: usize) {
        self.visits[visit].confirmed = true;
    }

    /// The checks after the last visit.
    pub(super) fn review(&self, plan: Plan) {
        for (n, one) in self.visits.iter().enumerate() {
            for other in &self.visits[n + 1..] {
                let apart = one.went < other.came || other.went < one.came;
                let shared = one.mode == LockMode::Read && other.mode == LockMode::Read;
                let both = one.confirmed && other.confirmed;
                assert!(
                    apart || shared || !both,
                    "confirmed overlap: {one:?} {other:?}"
                );
                // First in the queue, first granted. This is not checked between clients, where the store has the
                // queue, or where requests enter together.
                let in_line = one.client == other.client
                    && one.mode == other.mode
                    && matches!(one.mode, LockMode::Reentrant | LockMode::Write);
                let overtook = other.asked.1 < one.asked.0;
                // A granted hold may vanish before its task runs: the queue then continues without it.
                let vanished = plan.thefts && !other.confirmed;
                // The task may have asked for a request that was dropped. The next one then finds no line, and asks the
                // store itself. What the store grants to the task meanwhile goes to those that wait by then: the one that
                // asks is not among them until the store has refused it.
                let left_behind =
                    |(client, at): &(usize, u64)| *client == other.client && *at < other.asked.1;
                let is_left_behind = self.dropped.iter().any(left_behind);
                assert!(
                    plan.owners || !in_line || !overtook || vanished || is_left_behind,
                    "overtaken: {one:?} {other:?}"
                );
            }
        }
    }
}
