//! The locks of the layers around the current code, so that this code does not wait for itself.

use std::sync::Arc;

use futures_util::future::Either;
use uuid::Uuid;

use crate::error::LockError;
use crate::guard::LockHandle;
use crate::lock::{LockKey, LockMode};

tokio::task_local! {
    static HELD: LayerLocks;
}

/// The lock of a layer, and the locks of the layers around it.
#[derive(Clone)]
pub(crate) struct LayerLocks {
    lock: LockHandle,
    outer: Option<Arc<LayerLocks>>,
}

impl LayerLocks {
    /// `lock`, inside of the locks around the current code.
    pub(crate) fn new(lock: LockHandle) -> Self {
        let outer = HELD.try_with(|outer| Arc::new(outer.clone())).ok();
        Self { lock, outer }
    }

    /// Runs `work` while the lock is held.
    pub(crate) fn around<T>(self, work: impl Future<Output = T>) -> impl Future<Output = T> {
        HELD.scope(self, work)
    }
}

/// Runs `work` in another task, inside of the locks around the current code.
pub(crate) fn moved<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
    match HELD.try_with(LayerLocks::clone) {
        Ok(held) => Either::Left(held.around(work)),
        Err(_) => Either::Right(work),
    }
}

/// Fails if a layer around the caller holds `key`: a request with another owner would wait until its
/// time-out.
pub(super) fn check(client: Uuid, key: &LockKey, mode: LockMode) -> Result<(), LockError> {
    let waits_for_itself = |held: &LayerLocks| {
        let mut held = Some(held);
        while let Some(layer) = held {
            if layer.lock.excludes(client, key, mode) {
                return true;
            }
            held = layer.outer.as_deref();
        }
        false
    };
    match HELD.try_with(waits_for_itself) {
        Ok(true) => Err(LockError::invalid(
            "the layer around this request holds the key already, and another owner waits for it: leave this lock out, or \
             pass the request's `Owner` to `owner`, and the mode of its `LockHandle` to `mode` (both are extractors, and in the \
             request's extensions)",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;
    use crate::client::LockClient;
    use crate::store::memory::MemoryStore;

    /// The store carries it no longer, so a request for the key does not wait for it.
    #[tokio::test(start_paused = true)]
    async fn a_guard_whose_longest_hold_is_over_excludes_nothing() {
        let locks = LockClient::new(MemoryStore::new());
        let read = || locks.lock("k").mode(LockMode::Read);
        let limit = Duration::from_secs(60);
        let guard = read().max_hold(limit).await.expect("free");
        let held = LayerLocks::new(guard.handle());
        let key = guard.key();
        let ask = || {
            let held = held.clone();
            held.around(async { check(locks.id(), key, LockMode::Write) })
        };
        let invalid = ask().await.expect_err("the layer holds it");
        assert!(matches!(invalid, LockError::Invalid(_)));
        assert!(invalid.to_string().contains("to `mode`"), "{invalid}");
        sleep(limit).await;
        ask().await.expect("it is over");
    }
}
