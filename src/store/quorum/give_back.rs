//! Gives back the grants of an attempt that failed or was refused.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::QuorumStore;
use super::hold_table::HoldRef;
use super::members::Members;
use super::store_hold::StoreHold;
use super::vote_count::VoteCount;
use crate::store::{Attempt, LockStore, LockStoreExt, Outcome};

/// The longest pause after a split vote, and the bound of the first one. A pause is drawn at random below a bound that
/// doubles with each split.
const PAUSE: Duration = Duration::from_millis(500);
const FIRST_PAUSE: Duration = Duration::from_millis(8);

impl<S: LockStore> QuorumStore<S> {
    /// Gives back the grants, and returns when to ask again.
    pub(super) async fn refuse(
        &self,
        attempt: &Attempt,
        hold: &Arc<HoldRef>,
        started: Instant,
        count: VoteCount,
    ) -> Outcome {
        let now = Instant::now();
        let pause = hold.refused(count.granted, now, |splits| {
            let bound = FIRST_PAUSE.max(2 * (now - started));
            let bound = bound.saturating_mul(1 << splits.min(16)).min(PAUSE);
            bound.mul_f64(fastrand::f64())
        });
        self.shared.echoes.note(&attempt.hold, hold.waiting());
        self.give_back(attempt, hold, count.granted).await;
        let hint = count.retry_after();
        Outcome::Refused {
            retry_after: pause.map_or(hint, |pause| pause.min(hint)),
        }
    }

    /// Releases the grants of `stores`. In stores that refused, the attempt continues to wait.
    pub(super) async fn give_back(&self, attempt: &Attempt, hold: &Arc<HoldRef>, stores: Members) {
        let returned = self.in_turn(hold, stores, |at| {
            let attempt = attempt.clone();
            async move { at.return_grant(&attempt).await }
        });
        self.as_long_as_a_store_may_take(returned).await;
    }

    /// Withdraws the attempt from `stores`.
    pub(super) async fn withdraw_from(
        &self,
        attempt: &Attempt,
        hold: &Arc<HoldRef>,
        stores: Members,
    ) {
        let undone = self.undo_in(attempt, hold, stores);
        self.as_long_as_a_store_may_take(undone).await;
    }

    async fn as_long_as_a_store_may_take(&self, tasks: Vec<JoinHandle<()>>) {
        let _ = timeout_at(self.deadline(), join_all(tasks)).await;
    }
}

impl<S: LockStore> StoreHold<S> {
    /// Releases the grant of the store; the owner may continue to wait there.
    pub(super) async fn return_grant(&self, attempt: &Attempt) {
        let until = self.quorum.deadline();
        let released = self.store().release_one(&attempt.hold);
        if self.quorum.heard(self.at, until, released).await.is_err() {
            // If the release takes effect later, it must not end the hold of a later attempt.
            self.hold.taint(self.at);
            self.undo(attempt).await;
        }
    }
}
