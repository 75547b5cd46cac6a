//! Brings a granted hold to the remaining stores.

use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::QuorumStore;
use super::acquire::AcquireCall;
use super::members::Members;
use super::store_hold::AttemptedHold;
use crate::store::{LockStore, LockStoreExt};

/// The age at which a hold is asked for in the remaining stores.
const BACKFILL_AFTER: Duration = Duration::from_millis(100);

impl<S: LockStore> QuorumStore<S> {
    /// Asks for a hold that is not short once more in the stores that refused it, after the attempt was withdrawn there: the
    /// sooner all stores carry it, the more of them may fail. Most refusals have a simple cause: the store had not yet
    /// executed the previous release.
    pub(super) async fn backfill(
        self,
        won: Arc<AcquireCall>,
        stores: Members,
        withdrawn: Vec<JoinHandle<()>>,
    ) {
        self.as_long_as_a_store_may_take(withdrawn).await;
        sleep(BACKFILL_AFTER).await;
        if won.of.hold.lock().is_held(won.epoch) {
            self.ask_again(&won, stores);
        }
    }

    /// A store has granted late. If the hold is not short, this checks whether it was unbroken until now, so that the
    /// store counts long before the next renewal.
    pub(super) async fn prove(&self, call: &AcquireCall) {
        sleep(BACKFILL_AFTER).await;
        let AttemptedHold { attempt, hold } = &call.of;
        let is_late = {
            let hold = hold.lock();
            hold.is_held(call.epoch) && hold.carriers.late.len() > 0
        };
        if is_late {
            // The check records its result.
            let _ = self.check(from_ref(&attempt.hold)).await;
        }
    }
}
