//! Taking back an attempt.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::QuorumStore;
use super::hold_table::HoldRef;
use super::majority::{MajorityCall, Vote, Votes, answered};
use super::members::Members;
use super::store_hold::StoreHold;
use crate::backoff::Backoff;
use crate::limits::after;
use crate::store::{Attempt, LockStore};

/// For how long a store is asked at least to take something back; longer if the lease is.
const UNDO: Duration = Duration::from_secs(10);

/// The pauses between two tries.
const UNDO_PAUSE: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(2));

impl<S: LockStore> QuorumStore<S> {
    /// Withdraws everywhere.
    pub(super) async fn withdraw_majority(&self, attempt: &Attempt, unanswered: bool) -> Vote<()> {
        let hold = self.shared.holds.reopen(&attempt.hold);
        let epoch = hold.end();
        let until = self.deadline();
        let majority = self.majority_count();
        let ask = |at: StoreHold<S>, call| at.withdraw(call, attempt.clone(), unanswered, until);
        let decide = |votes: &Votes<()>| (answered(votes) >= majority).then_some(());
        self.majority(&hold, until, ask, decide, |_| true).await?;
        hold.retire(epoch);
        Ok(())
    }

    /// Takes back whatever `stores` carry of an attempt, in the background.
    pub(super) fn undo_in(
        &self,
        attempt: &Attempt,
        hold: &Arc<HoldRef>,
        stores: Members,
    ) -> Vec<JoinHandle<()>> {
        self.in_turn(hold, stores, |at| {
            let attempt = attempt.clone();
            async move { at.undo(&attempt).await }
        })
    }
}

impl<S: LockStore> StoreHold<S> {
    /// Takes back whatever the store carries of an attempt, trying again until it answers or the lease is over.
    pub(super) async fn undo(&self, attempt: &Attempt) {
        self.undo_from(attempt, Instant::now()).await;
    }

    async fn undo_from(&self, attempt: &Attempt, begun: Instant) {
        if !self.hold.is_dirty(self.at) {
            return;
        }
        let over = after(begun, attempt.lease.max(UNDO));
        let mut backoff = UNDO_PAUSE;
        loop {
            let until = self.quorum.deadline();
            let Err(error) = self.withdraw_once(attempt, false, until).await else {
                return;
            };
            if error.is_final() || Instant::now() >= over {
                tracing::debug!(%error, store = self.at, "could not take an attempt back; its lease will");
                return;
            }
            backoff.pause().await;
        }
    }

    /// Withdraws in the store, for as long as it takes if the attempt may have left something there.
    async fn withdraw(
        self,
        call: Arc<MajorityCall<()>>,
        attempt: Attempt,
        unanswered: bool,
        until: Instant,
    ) {
        let dirty = self.hold.is_dirty(self.at);
        if !dirty {
            // Where nothing was left, nothing is to be taken back.
            call.cast(self.at, Ok(()));
        }
        let answer = self.withdraw_once(&attempt, unanswered, until).await;
        if dirty {
            let failed = answer.is_err();
            call.cast(self.at, answer);
            if failed {
                self.undo_from(&attempt, until).await;
            }
        }
    }

    async fn withdraw_once(&self, attempt: &Attempt, unanswered: bool, until: Instant) -> Vote<()> {
        let unanswered = unanswered || self.hold.is_tainted(self.at);
        let withdrawn = self.store().withdraw(attempt, unanswered);
        self.quorum.heard(self.at, until, withdrawn).await
    }
}
