//! What attempts leave in the store, and how it is taken back.

use std::error::Error;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::question::{Reply, Wanted};
use crate::backoff::Backoff;
use crate::error::{StoreError, StoreErrorKind};
use crate::limits::WITHDRAWAL;
use crate::store::{Attempt, BATCH, DynStore, HoldStatus, Release};

/// What the attempts have left in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeftInStore {
    Nothing,
    /// Holds, or a waiter's entries.
    Known,
    /// Perhaps a hold, which may still appear.
    Unknown,
}

impl LeftInStore {
    /// What the attempts have left after a further answer.
    pub(super) fn after(self, want: Wanted, answer: &Result<Reply, StoreError>) -> Self {
        match (answer, want) {
            (Ok(Reply::Granted(_)), _) => Self::Known,
            (Ok(Reply::Refused { .. }), Wanted::One { patience: Some(_) }) => Self::Known,
            (Err(error), _) if error.kind() == StoreErrorKind::Unanswered => Self::Unknown,
            // Some of several may have holds.
            (Err(_), Wanted::Several(_)) => Self::Known,
            _ => self,
        }
    }

    /// Takes back what `attempts` have left.
    pub(super) async fn take_back(
        self,
        store: &Arc<dyn DynStore>,
        attempts: Vec<Attempt>,
        want: Wanted,
    ) {
        let attempts = match (self, want) {
            (Self::Nothing, _) => return,
            (Self::Known, Wanted::Several(_)) => give_back(store, attempts).await,
            _ => attempts,
        };
        let unanswered = self == Self::Unknown;
        let withdrawals = attempts.into_iter();
        let withdrawals = withdrawals.map(|attempt| withdraw(store.clone(), attempt, unanswered));
        join_all(withdrawals).await;
    }
}

/// Releases the holds of answered attempts, by partition. Such attempts have no patience, and leave no waiter's entry. Returns
/// those of which the store does not say whether they have left a hold.
async fn give_back(store: &Arc<dyn DynStore>, attempts: Vec<Attempt>) -> Vec<Attempt> {
    let partitions = store.by_partition(attempts, |attempt| &attempt.hold.key);
    let in_batches = |attempts: Vec<Attempt>| async move {
        let mut undecided = Vec::new();
        for batch in attempts.chunks(BATCH) {
            let releases = batch
                .iter()
                .map(|attempt| Release::new(attempt.hold.clone()));
            let answer = store.clone().release(releases.collect()).await;
            let is_undecided = |index: usize| {
                let status = answer.as_ref().map(|released| released[index].status);
                !matches!(status, Ok(HoldStatus::Held | HoldStatus::Gone))
            };
            let left = (0..).zip(batch).filter(|(index, _)| is_undecided(*index));
            undecided.extend(left.map(|(_, attempt)| attempt.clone()));
        }
        undecided
    };
    let undecided = join_all(partitions.into_values().map(in_batches)).await;
    undecided.into_iter().flatten().collect()
}

/// Repeats the withdrawal until the store has answered, or the attempt's lease is over.
async fn withdraw(store: Arc<dyn DynStore>, attempt: Attempt, unanswered: bool) {
    let over = Instant::now() + attempt.lease.max(WITHDRAWAL);
    let mut backoff = Backoff::STORE;
    while let Err(error) = store.clone().withdraw(attempt.clone(), unanswered).await {
        if error.is_final() || Instant::now() >= over {
            let error = &error as &dyn Error;
            tracing::warn!(error, "could not withdraw an attempt: its lease ends it");
            return;
        }
        backoff.pause().await;
    }
}
