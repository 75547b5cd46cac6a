//! Having more than a majority carry a hold.

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

/// How old a hold is before work is done to have more stores carry it and count.
const COMPLETE_AFTER: Duration = Duration::from_millis(100);

impl<S: LockStore> QuorumStore<S> {
    /// Ends the wait in the stores that refused what is granted: there it would hold back others. If the hold is not a
    /// short one, asks them once more: the sooner all carry it, the more of them may fail. Mostly they had not yet heard
    /// of the release before it.
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

    /// A store has joined late. If the hold is not a short one, asks whether it was unbroken until now, so that the store
    /// counts long before the next renewal.
    pub(super) async fn prove(&self, election: &Election, entry: &Opened) {
        sleep(COMPLETE_AFTER).await;
        if entry.wants(election.epoch) && entry.carriers().late.len() > 0 {
            // What it finds is noted.
            let _ = self.check(from_ref(&election.attempt.hold)).await;
        }
    }
}
