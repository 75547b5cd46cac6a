//! The wrapped store: the connections to it, and the holds and waiters that can vanish.

use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fastrand::Rng;
use tokio::sync::Notify;

use super::{Fault, Faults, Tally};
use tower_distributed_lock::error::StoreError;
use tower_distributed_lock::lock::Hold;
use tower_distributed_lock::store::{
    Attempt, HoldStatus, LockStore, Outcome, Record, Released, SeveralOutcome, Want,
};

pub(super) struct FaultyServer<S> {
    pub(super) store: S,
    state: Mutex<ServerState>,
    /// Notified when connections break or are restored.
    ///
    /// It wakes waiters in the order in which they began to wait, and a `watch` does not.
    changed: Notify,
}

/// The mutex protects all of it, and is not held while the store is asked. `holds` and `waiters` have an entry from an answer of
/// the store until a release or a withdrawal is sent to it.
pub(super) struct ServerState {
    pub(super) random: Rng,
    pub(super) faults: Faults,
    pub(super) tally: Tally,
    /// Whether the test has broken every connection, until it restores them.
    disconnected: bool,
    links: Vec<Link>,
    /// Holds that were granted and not released: these can vanish. Some may have expired.
    holds: Vec<Hold>,
    /// The attempts that were refused.
    waiters: Vec<Attempt>,
}

/// The connection of one process to the store.
#[derive(Default)]
struct Link {
    /// The faults that have broken it, and whose outages are not over.
    outages: u32,
    /// How often it broke.
    cuts: u64,
}

impl<S: LockStore> FaultyServer<S> {
    pub(super) fn new(store: S, faults: Faults, seed: u64) -> Self {
        Self {
            store,
            state: Mutex::new(ServerState {
                random: Rng::with_seed(seed),
                faults,
                tally: Tally::default(),
                disconnected: false,
                links: Vec::new(),
                holds: Vec::new(),
                waiters: Vec::new(),
            }),
            changed: Notify::new(),
        }
    }

    /// A panic under the mutex leaves no step half done.
    pub(super) fn state(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection, and returns its number.
    pub(super) fn connect(&self) -> usize {
        let links = &mut self.state().links;
        links.push(Link::default());
        links.len() - 1
    }

    /// Breaks every connection, or restores them.
    pub(super) fn set_disconnected(&self, disconnected: bool) {
        self.change(|state| {
            state.disconnected = disconnected;
            let links = state.links.iter_mut();
            links.for_each(|link| link.cuts += u64::from(disconnected));
        });
    }

    /// Begins an outage of a connection.
    pub(super) fn break_link(&self, link: usize) {
        self.change(|state| {
            let link = &mut state.links[link];
            link.outages += 1;
            link.cuts += 1;
        });
    }

    /// Ends an outage. The connection is up again after the last.
    pub(super) fn restore_link(&self, link: usize) {
        self.change(|state| state.links[link].outages -= 1);
    }

    fn change(&self, change: impl FnOnce(&mut ServerState)) {
        change(&mut self.state());
        self.changed.notify_waiters();
    }

    /// Resolves when the connection breaks; at once if it is down.
    pub(super) async fn cut(&self, link: usize) {
        let cuts = self.state().cuts(link);
        self.until(link, |cut, is_up| cut != cuts || !is_up).await;
    }

    /// Resolves when the connection is up again after more than `seen` cuts, and returns their number.
    pub(super) async fn reconnected(&self, link: usize, seen: u64) -> u64 {
        self.until(link, |cuts, is_up| cuts > seen && is_up).await
    }

    /// Waits until the number of cuts and whether the connection is up are as wanted. Returns the number of that moment: a later
    /// one may count a cut of which the caller has seen nothing.
    async fn until(&self, link: usize, wanted: impl Fn(u64, bool) -> bool) -> u64 {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the state is read, so that no change is missed between the two.
            changed.as_mut().enable();
            let (cuts, is_up) = {
                let state = self.state();
                (state.cuts(link), state.is_up(link))
            };
            if wanted(cuts, is_up) {
                return cuts;
            }
            changed.await;
        }
    }

    pub(super) async fn acquire(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
        let answer = self.store.acquire(attempt).await;
        match answer {
            Ok(Outcome::Granted { .. }) => self.state().granted(attempt),
            Ok(Outcome::Refused { .. }) if attempt.patience.is_some() => {
                self.state().waits(attempt);
            }
            _ => {}
        }
        answer
    }

    pub(super) async fn acquire_several(
        &self,
        attempts: &[Attempt],
        want: Want,
    ) -> Result<SeveralOutcome, StoreError> {
        let answer = self.store.acquire_several(attempts, want).await;
        if let Ok(SeveralOutcome::Granted(grants)) = &answer {
            let mut state = self.state();
            let granted = grants.iter().filter_map(|grant| attempts.get(grant.index));
            granted.for_each(|attempt| state.granted(attempt));
        }
        answer
    }

    pub(super) async fn release(
        &self,
        hold: &Hold,
        record: Option<&Record>,
    ) -> Result<Released, StoreError> {
        self.state().ended(hold);
        self.store.release(hold, record).await
    }

    pub(super) async fn withdraw(
        &self,
        attempt: &Attempt,
        unanswered: bool,
    ) -> Result<(), StoreError> {
        self.state().ended(&attempt.hold);
        self.store.withdraw(attempt, unanswered).await
    }

    /// Removes one hold, if there is one.
    pub(super) async fn vanish(&self) {
        loop {
            let hold = {
                let state = &mut *self.state();
                if state.holds.is_empty() {
                    return;
                }
                let place = state.random.usize(..state.holds.len());
                state.holds.swap_remove(place)
            };
            let released = self.store.release(&hold, None).await;
            if released.is_ok_and(|released| released.status == HoldStatus::Held) {
                self.state().tally.hit(Fault::Vanished);
                return;
            }
        }
    }

    /// Removes all holds and waiters.
    pub(super) async fn flush(&self) {
        let (holds, waiters) = {
            let state = &mut *self.state();
            (mem::take(&mut state.holds), mem::take(&mut state.waiters))
        };
        if !holds.is_empty() || !waiters.is_empty() {
            self.state().tally.hit(Fault::Flushed);
        }
        // An error is ignored: a store that fails here has no more data to lose.
        for hold in holds {
            let _ = self.store.release(&hold, None).await;
        }
        for attempt in waiters {
            let _ = self.store.withdraw(&attempt, false).await;
        }
    }
}

impl ServerState {
    pub(super) fn is_up(&self, link: usize) -> bool {
        !self.disconnected && self.links[link].outages == 0
    }

    pub(super) fn cuts(&self, link: usize) -> u64 {
        self.links[link].cuts
    }

    /// The hold is released, or about to be released.
    pub(super) fn ended(&mut self, hold: &Hold) {
        self.holds.retain(|held| held != hold);
        self.waiters.retain(|waiter| waiter.hold != *hold);
    }

    fn granted(&mut self, attempt: &Attempt) {
        self.waiters.retain(|waiter| waiter.hold != attempt.hold);
        if !self.holds.contains(&attempt.hold) {
            self.holds.push(attempt.hold.clone());
        }
    }

    fn waits(&mut self, attempt: &Attempt) {
        let mut waiters = self.waiters.iter();
        if !waiters.any(|waiter| waiter.hold == attempt.hold) {
            self.waiters.push(attempt.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use tower_distributed_lock::MemoryStore;

    use super::*;

    #[test]
    fn a_connection_is_up_when_the_last_of_its_outages_is_over() {
        let server = FaultyServer::new(MemoryStore::new(), Faults::none(), 0);
        let link = server.connect();
        server.break_link(link);
        server.break_link(link);
        server.restore_link(link);
        assert!(!server.state().is_up(link));
        server.restore_link(link);
        assert!(server.state().is_up(link));
    }
}
