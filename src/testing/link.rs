//! The connection of one process to the store.

use tokio::sync::Notify;

use crate::sync::Mutex;

/// A connection that can break.
///
/// A [`Notify`] wakes waiters in the order in which they began to wait, and a `watch` does not.
#[derive(Debug, Default)]
pub(super) struct Link {
    line: Mutex<Line>,
    changed: Notify,
}

#[derive(Debug, Clone, Copy, Default)]
struct Line {
    /// Broken by a fault; the connection is restored after the outage.
    broken: bool,
    /// Broken by the test, until the test restores it.
    severed: bool,
    /// How often it broke.
    cuts: u64,
}

impl Line {
    fn is_up(self) -> bool {
        !self.broken && !self.severed
    }
}

impl Link {
    pub(super) fn is_up(&self) -> bool {
        self.line.lock().is_up()
    }

    pub(super) fn set_broken(&self, broken: bool) {
        self.change(|line| line.broken = broken);
    }

    pub(super) fn set_severed(&self, severed: bool) {
        self.change(|line| line.severed = severed);
    }

    /// Resolves when the connection breaks; at once if it is down.
    pub(super) async fn cut(&self) {
        let cuts = self.line.lock().cuts;
        self.until(|line| line.cuts != cuts || !line.is_up()).await;
    }

    /// Resolves when the connection is up again after more than `seen` cuts, and stores their number in `seen`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: `seen` changes only when it returns.
    pub(super) async fn mended(&self, seen: &mut u64) {
        let known = *seen;
        let line = self.until(|line| line.cuts > known && line.is_up()).await;
        *seen = line.cuts;
    }

    pub(super) fn cuts(&self) -> u64 {
        self.line.lock().cuts
    }

    async fn until(&self, wanted: impl Fn(Line) -> bool) -> Line {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the state is read, so that no change is missed between the two.
            changed.as_mut().enable();
            let line = *self.line.lock();
            if wanted(line) {
                return line;
            }
            changed.await;
        }
    }

    fn change(&self, change: impl FnOnce(&mut Line)) {
        {
            let mut line = self.line.lock();
            let was_up = line.is_up();
            change(&mut line);
            line.cuts += u64::from(was_up && !line.is_up());
        }
        self.changed.notify_waiters();
    }
}
