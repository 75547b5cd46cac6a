//! A console's view of a client.

use super::LockClient;
use crate::lock::LockKey;
use crate::queue::{HoldView, KeyView, WaiterView};
use crate::telemetry::Journal;

/// A view of the present state of a client. It changes nothing.
#[derive(Debug)]
pub(crate) struct Inside<'a>(&'a LockClient);

impl LockClient {
    pub(crate) fn inside(&self) -> Inside<'_> {
        Inside(self)
    }
}

impl Inside<'_> {
    /// The key with this name in the name space of the client.
    pub(crate) fn own(&self, key: &LockKey) -> LockKey {
        self.0.inner.namespace.key(key.clone())
    }

    /// Every key that requests of this process hold or wait for, in no particular order.
    pub(crate) fn keys(&self) -> Vec<KeyView> {
        self.0.inner.queues.view()
    }

    /// The holds of one key, and the requests that wait for it in this process and do not ask the store, in their order.
    pub(crate) fn key(&self, key: &LockKey) -> (Vec<HoldView>, Vec<WaiterView>) {
        self.0.inner.queues.view_of(key)
    }

    pub(crate) fn journal(&self) -> &Journal {
        self.0.journal()
    }

    /// Whether the client was shut down.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.inner.doors.is_closed()
    }
}
