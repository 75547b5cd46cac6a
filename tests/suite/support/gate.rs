//! A place at which a test stops an operation.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Lets everything pass until it is closed, and then stops the first operation.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    closed: AtomicBool,
    reached: Notify,
    opened: Notify,
}

impl Gate {
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Waits until an operation has stopped at the gate.
    pub(crate) async fn reached(&self) {
        self.reached.notified().await;
    }

    pub(crate) fn open(&self) {
        self.opened.notify_one();
    }

    pub(super) async fn pass(&self) {
        if self.closed.swap(false, Ordering::SeqCst) {
            self.reached.notify_one();
            self.opened.notified().await;
        }
    }
}
