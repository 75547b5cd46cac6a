//! Gives back the grants of an attempt that failed or was refused.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout_at};

use super::QuorumStore;
use super::ledger::Opened;
use super::members::Members;
use super::tally::Tally;
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
        entry: &Arc<Opened>,
        started: Instant,
        tally: Tally,
    ) -> Outcome {
        let now = Instant::now();
        let pause = entry.refuse(tally.granted, now, |splits| {
            let bound = FIRST_PAUSE.max(2 * (now - started));
            let bound = bound.saturating_mul(1 << splits.min(16)).min(PAUSE);
            bound.mul_f64(fastrand::f64())
        });
        self.shared.echoes.note(&attempt.hold, entry.waiting());
        self.give_back(attempt, entry, tally.granted).await;
        let hint = tally.retry_after();
        Outcome::Refused {
            retry_after: pause.map_or(hint, |pause| pause.min(hint)),
        }
    }

    /// Releases the grants of `stores`. In stores that refused, the attempt continues to wait.
    pub(super) async fn give_back(&self, attempt: &Attempt, entry: &Arc<Opened>, stores: Members) {
        self.in_turn(
            attempt,
            entry,
            stores,
            |quorum, attempt, entry, store| async move {
                quorum.return_one(&attempt, &entry, store).await;
            },
        )
        .await;
    }

    /// Withdraws the attempt from `stores`.
    pub(super) async fn withdraw_from(
        &self,
        attempt: &Attempt,
        entry: &Arc<Opened>,
        stores: Members,
    ) {
        self.in_turn(
            attempt,
            entry,
            stores,
            |quorum, attempt, entry, store| async move {
                quorum.undo(&attempt, &entry, store).await;
            },
        )
        .await;
    }

    /// Runs an operation in each of `stores`, in its turn and to its end. Waits for the results up to the time limit
    /// of a store.
    async fn in_turn<F>(
        &self,
        attempt: &Attempt,
        entry: &Arc<Opened>,
        stores: Members,
        work: impl Fn(Self, Attempt, Arc<Opened>, usize) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let tasks = stores.iter().map(|store| {
            let mut turn = entry.turn(store);
            let work = work(self.clone(), attempt.clone(), entry.clone(), store);
            self.shared.running.spawn(async move {
                turn.begin().await;
                work.await;
            })
        });
        let until = self.deadline();
        let _ = timeout_at(until, join_all(tasks.collect::<Vec<_>>())).await;
    }

    /// Releases the grant of one store; the owner may continue to wait there.
    pub(super) async fn return_one(&self, attempt: &Attempt, entry: &Opened, store: usize) {
        let until = self.deadline();
        let released = self.shared.stores[store].release_one(&attempt.hold);
        if self.heard(store, until, released).await.is_err() {
            // If the release takes effect later, it must not end the hold of a later attempt.
            entry.spend(store);
            self.undo(attempt, entry, store).await;
        }
    }
}
