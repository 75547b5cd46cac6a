//! Taking back: the grants of an attempt that failed or was refused, and a whole attempt.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::QuorumStore;
use super::hold::{AttemptedHold, StoreHold};
use super::majority::{MajorityCall, Vote, most_answered};
use super::members::Members;
use super::vote_count::VoteCount;
use crate::backoff::Backoff;
use crate::limits::{WITHDRAWAL, after};
use crate::store::{Attempt, LockStore, LockStoreExt, Outcome};

/// The pauses between two tries.
const UNDO_PAUSE: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(2));

/// The longest pause after a split vote, and the bound of the first one. A pause is drawn at random below a bound that
/// doubles with each split.
const PAUSE: Duration = Duration::from_millis(500);
const FIRST_PAUSE: Duration = Duration::from_millis(8);

impl<S: LockStore> QuorumStore<S> {
    /// Withdraws everywhere.
    pub(super) async fn withdraw_majority(&self, attempt: &Attempt, unanswered: bool) -> Vote<()> {
        let of = self.given_up(attempt.clone());
        let epoch = of.hold.lock().end();
        let until = self.deadline();
        let ask = |at: StoreHold<S>, call| at.withdraw(call, unanswered, until);
        let decide = most_answered(self.majority_count());
        self.majority(&of, until, ask, decide, |_| true).await?;
        of.hold.lock().retire(epoch);
        Ok(())
    }

    /// Gives back the grants, and returns when to ask again.
    pub(super) async fn refuse(
        &self,
        of: &AttemptedHold,
        started: Instant,
        count: VoteCount,
    ) -> Outcome {
        let now = Instant::now();
        let pause = of.hold.lock().refused(count.granted, now, |splits| {
            let bound = FIRST_PAUSE.max(2 * (now - started));
            let bound = bound.saturating_mul(1 << splits.min(16)).min(PAUSE);
            bound.mul_f64(fastrand::f64())
        });
        self.note_votes(of);
        self.give_back(of, count.granted).await;
        let hint = count.retry_after();
        Outcome::Refused {
            retry_after: pause.map_or(hint, |pause| pause.min(hint)),
        }
    }

    /// Releases the grants of `stores`. In stores that refused, the attempt continues to wait.
    pub(super) async fn give_back(&self, of: &AttemptedHold, stores: Members) {
        let returned = self.in_order(of, stores, async |at| at.return_grant().await);
        self.as_long_as_a_store_may_take(returned).await;
    }

    pub(super) async fn as_long_as_a_store_may_take(&self, tasks: Vec<JoinHandle<()>>) {
        let _ = timeout_at(self.deadline(), join_all(tasks)).await;
    }

    /// Takes back whatever `stores` carry of an attempt, in the background.
    pub(super) fn undo_in(&self, of: &AttemptedHold, stores: Members) -> Vec<JoinHandle<()>> {
        self.in_order(of, stores, async |at| at.undo().await)
    }
}

impl<S: LockStore> StoreHold<S> {
    /// Releases the grant of the store; the owner may continue to wait there.
    pub(super) async fn return_grant(&self) {
        let until = self.quorum.deadline();
        let released = self.store().release_one(&self.of.attempt.hold);
        if self.quorum.timed(self.at, until, released).await.is_err() {
            // If the release takes effect later, it must not end the hold of a later attempt.
            self.of.hold.lock().tainted.insert(self.at);
            self.undo().await;
        }
    }

    /// Takes back whatever the store carries of an attempt, trying again until it answers or the lease is over.
    pub(super) async fn undo(&self) {
        self.undo_from(Instant::now()).await;
    }

    async fn undo_from(&self, begun: Instant) {
        if !self.of.hold.lock().dirty.contains(self.at) {
            return;
        }
        let over = after(begun, self.of.attempt.lease.max(WITHDRAWAL));
        let mut backoff = UNDO_PAUSE;
        loop {
            let until = self.quorum.deadline();
            let Err(error) = self.withdraw_once(false, until).await else {
                return;
            };
            if error.is_final() || Instant::now() >= over {
                tracing::debug!(%error, store = self.at, "could not withdraw an attempt: its lease ends it");
                return;
            }
            backoff.pause().await;
        }
    }

    /// Withdraws in the store, for as long as it takes if the attempt may have left something there.
    async fn withdraw(self, call: Arc<MajorityCall<()>>, unanswered: bool, until: Instant) {
        let dirty = self.of.hold.lock().dirty.contains(self.at);
        if !dirty {
            // This store has nothing of the attempt: it votes now.
            call.cast(self.at, Ok(()));
        }
        let answer = self.withdraw_once(unanswered, until).await;
        if dirty {
            let failed = answer.is_err();
            call.cast(self.at, answer);
            if failed {
                self.undo_from(until).await;
            }
        }
    }

    async fn withdraw_once(&self, unanswered: bool, until: Instant) -> Vote<()> {
        let AttemptedHold { attempt, hold } = &self.of;
        let unanswered = unanswered || hold.lock().tainted.contains(self.at);
        let withdrawn = self.store().withdraw(attempt, unanswered);
        self.quorum.timed(self.at, until, withdrawn).await
    }
}
