//! A console's view of a client. It changes nothing.

use super::LockClient;
use crate::lock::LockKey;
use crate::queue::{HoldView, KeyView, WaiterView};

impl LockClient {
    /// Every key that requests of this process hold or wait for, in no particular order.
    pub(crate) fn view(&self) -> Vec<KeyView> {
        self.inner.queues.view()
    }

    /// The holds of one key, as [`named`](Self::named) returns it, and the requests that wait for it in this process and do not
    /// ask the store, in their order.
    pub(crate) fn view_of(&self, key: &LockKey) -> (Vec<HoldView>, Vec<WaiterView>) {
        self.inner.queues.view_of(key)
    }

    /// Whether the client was shut down.
    pub(crate) fn is_closed(&self) -> bool {
        self.inner.tracker.is_closed()
    }
}
