//! Taking back an attempt.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::QuorumStore;
use super::hold::QuorumHold;
use super::hold_table::HoldRef;
use super::majority::{Conclusion, StoreCall, Votes};
use super::members::Members;
use super::vote_count::{answered, no_majority};
use crate::backoff::Backoff;
use crate::error::StoreError;
use crate::limits::after;
use crate::store::{Attempt, LockStore};

/// For how long a store is asked at least to take something back; longer if the lease is.
const UNDO: Duration = Duration::from_secs(10);

/// The pauses between two tries.
const UNDO_PAUSE: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(2));

impl<S: LockStore> QuorumStore<S> {
    /// Withdraws everywhere.
    pub(super) async fn withdraw_majority(
        &self,
        attempt: &Attempt,
        unanswered: bool,
    ) -> Result<(), StoreError> {
        let hold = self.shared.holds.reopen(&attempt.hold);
        let epoch = hold.end();
        let until = self.deadline();
        let majority = self.majority_count();
        let ask = |place: StoreCall<S, ()>| place.withdraw(attempt.clone(), unanswered, until);
        let decided = |votes: &Votes<()>| answered(votes) >= majority;
        let count = |votes: &Votes<()>| match decided(votes) {
            true => (Conclusion::Majority, Ok(())),
            false => {
                let error = no_majority(majority, votes, true);
                (Conclusion::NoMajority, Err(error))
            }
        };
        self.majority(&hold, until, ask, decided, count).await?;
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
        self.in_turn(hold, stores, |quorum, hold, store| {
            let attempt = attempt.clone();
            async move { quorum.undo(&attempt, &hold, store).await }
        })
    }

    /// Takes back whatever one store carries of an attempt, trying again until it answers or the lease is over.
    pub(super) async fn undo(&self, attempt: &Attempt, hold: &QuorumHold, store: usize) {
        self.undo_from(attempt, hold, store, Instant::now()).await;
    }

    async fn undo_from(&self, attempt: &Attempt, hold: &QuorumHold, store: usize, begun: Instant) {
        if !hold.is_dirty(store) {
            return;
        }
        let over = after(begun, attempt.lease.max(UNDO));
        let mut backoff = UNDO_PAUSE;
        loop {
            let unanswered = hold.is_tainted(store);
            let until = self.deadline();
            let withdrawn = self.shared.stores[store].withdraw(attempt, unanswered);
            let Err(error) = self.heard(store, until, withdrawn).await else {
                return;
            };
            if error.is_final() || Instant::now() >= over {
                tracing::debug!(%error, store, "could not take an attempt back; its lease will");
                return;
            }
            backoff.pause().await;
        }
    }
}

impl<S: LockStore> StoreCall<S, ()> {
    /// Withdraws in one store, for as long as it takes if the attempt may have left something there.
    async fn withdraw(self, attempt: Attempt, unanswered: bool, until: Instant) {
        let Self {
            quorum,
            hold,
            call,
            store,
        } = self;
        let unanswered = unanswered || hold.is_tainted(store);
        let dirty = hold.is_dirty(store);
        if !dirty {
            // Where nothing was left, nothing is to be taken back.
            call.cast(store, Ok(()));
        }
        let withdrawn = quorum.shared.stores[store].withdraw(&attempt, unanswered);
        let answer = quorum.heard(store, until, withdrawn).await;
        if dirty {
            let failed = answer.is_err();
            call.cast(store, answer);
            if failed {
                quorum.undo_from(&attempt, &hold, store, until).await;
            }
        }
    }
}
