//! The connection of one process to the store.

use tokio::sync::Notify;

use crate::sync::Mutex;

/// A connection that can break.
///
/// A [`Notify`] wakes waiters in the order in which they began to wait, and a `watch` does not.
#[derive(Debug, Default)]
pub(super) struct Link {
    state: Mutex<Connectivity>,
    changed: Notify,
}

/// The connection is up if it is neither `broken` nor `disconnected`. Each change from up to down is one of the `cuts`.
#[derive(Debug, Clone, Copy, Default)]
struct Connectivity {
    /// Broken by a fault; the connection is restored after the outage.
    broken: bool,
    /// Broken by the test, until the test restores it.
    disconnected: bool,
    /// How often it broke.
    cuts: u64,
}

impl Connectivity {
    fn is_up(self) -> bool {
        !self.broken && !self.disconnected
    }
}

impl Link {
    pub(super) fn is_up(&self) -> bool {
        self.state.lock().is_up()
    }

    pub(super) fn set_broken(&self, broken: bool) {
        self.change(|state| state.broken = broken);
    }

    pub(super) fn set_disconnected(&self, disconnected: bool) {
        self.change(|state| state.disconnected = disconnected);
    }

    /// Resolves when the connection breaks; at once if it is down.
    pub(super) async fn cut(&self) {
        let cuts = self.state.lock().cuts;
        self.until(|state| state.cuts != cuts || !state.is_up())
            .await;
    }

    /// Resolves when the connection is up again after more than `seen` cuts, and stores their number in `seen`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: `seen` changes only when it returns.
    pub(super) async fn reconnected(&self, seen: &mut u64) {
        let known = *seen;
        let state = self
            .until(|state| state.cuts > known && state.is_up())
            .await;
        *seen = state.cuts;
    }

    pub(super) fn cuts(&self) -> u64 {
        self.state.lock().cuts
    }

    async fn until(&self, wanted: impl Fn(Connectivity) -> bool) -> Connectivity {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the state is read, so that no change is missed between the two.
            changed.as_mut().enable();
            let state = *self.state.lock();
            if wanted(state) {
                return state;
            }
            changed.await;
        }
    }

    fn change(&self, change: impl FnOnce(&mut Connectivity)) {
        {
            let mut state = self.state.lock();
            let was_up = state.is_up();
            change(&mut state);
            state.cuts += u64::from(was_up && !state.is_up());
        }
        self.changed.notify_waiters();
    }
}
