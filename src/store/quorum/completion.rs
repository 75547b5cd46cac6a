//! Brings a granted hold to the remaining stores.

use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::QuorumStore;
use super::election::Election;
use super::ledger::Opened;
use super::members::Members;
use super::round::{Round, Verdict};
use crate::store::{Attempt, LockStore, LockStoreExt};

/// The age at which a hold is asked for in the remaining stores.
const COMPLETE_AFTER: Duration = Duration::from_millis(100);

impl<S: LockStore> QuorumStore<S> {
    /// Withdraws the attempt from the stores that refused it, where it would block other attempts. A hold that is not
    /// short is asked for once more there: the sooner all stores carry it, the more of them may fail. Most refusals have
    /// a simple cause: the store had not yet executed the previous release.
    pub(super) async fn complete(self, won: Arc<Election>, entry: Arc<Opened>, stores: Members) {
        let attempt = won.attempt.clone();
        if attempt.patience.is_some() {
            self.withdraw_from(&attempt, &entry, stores).await;
        }
        sleep(COMPLETE_AFTER).await;
        if !entry.wants(won.epoch) {
            return;
        }
        let round = Round::new(self.count());
        round.close(|_| (Verdict::Carried, ()));
        let until = self.until(Instant::now(), attempt.lease);
        let attempt = Attempt {
            patience: None,
            ..attempt
        };
        let election = Arc::new(Election::new(attempt, won.epoch, round, until));
        for store in stores.iter() {
            let turn = entry.turn(store);
            self.shared.running.spawn(self.clone().ask(
                election.clone(),
                entry.clone(),
                store,
                turn,
            ));
        }
    }

    /// A store has granted late. If the hold is not short, this checks whether it was unbroken until now, so that the
    /// store counts long before the next renewal.
    pub(super) async fn prove(&self, election: &Election, entry: &Opened) {
        sleep(COMPLETE_AFTER).await;
        if entry.wants(election.epoch) && entry.carriers().late.len() > 0 {
            // The check records its result in the entry.
            let _ = self.check(from_ref(&election.attempt.hold)).await;
        }
    }
}
