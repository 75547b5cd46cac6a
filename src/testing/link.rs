//! One process's connection to the store.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A connection that can break.
///
/// Waiters for a change are woken in the order in which they began to wait; a `watch` would wake in an order of its own.
#[derive(Debug, Default)]
pub(super) struct Link {
    line: Mutex<Line>,
    changed: Notify,
}

#[derive(Debug, Clone, Copy, Default)]
struct Line {
    /// By chance; it mends by itself.
    broken: bool,
    /// By the test; it stays so.
    severed: bool,
    /// How many times it went down.
    cuts: u64,
}

impl Line {
    fn is_up(self) -> bool {
        !self.broken && !self.severed
    }
}

impl Link {
    pub(super) fn is_up(&self) -> bool {
        self.line().is_up()
    }

    pub(super) fn set_broken(&self, broken: bool) {
        self.change(|line| line.broken = broken);
    }

    pub(super) fn set_severed(&self, severed: bool) {
        self.change(|line| line.severed = severed);
    }

    /// Resolves when the connection goes down, or if it is down.
    pub(super) async fn cut(&self) {
        let cuts = self.line().cuts;
        self.until(|line| line.cuts != cuts || !line.is_up()).await;
    }

    /// Resolves when the connection stands again after more than `seen` cuts, and counts those.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what is counted is returned.
    pub(super) async fn mended(&self, seen: &mut u64) {
        let known = *seen;
        let line = self.until(|line| line.cuts > known && line.is_up()).await;
        *seen = line.cuts;
    }

    pub(super) fn cuts(&self) -> u64 {
        self.line().cuts
    }

    async fn until(&self, wanted: impl Fn(Line) -> bool) -> Line {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the look, so that no change falls between the two.
            changed.as_mut().enable();
            let line = *self.line();
            if wanted(line) {
                return line;
            }
            changed.await;
        }
    }

    fn change(&self, change: impl FnOnce(&mut Line)) {
        {
            let mut line = self.line();
            let was_up = line.is_up();
            change(&mut line);
            line.cuts += u64::from(was_up && !line.is_up());
        }
        self.changed.notify_waiters();
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
