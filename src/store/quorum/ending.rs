//! Releasing a hold, and taking back an attempt.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::entry::{Entry, Epoch};
use super::ledger::Opened;
use super::members::Members;
use super::round::{Round, Verdict, Vote};
use super::tally::no_majority;
use super::turn::Turn;
use super::{QuorumStore, after};
use crate::error::{StoreError, StoreErrorKind};
use crate::lock::Hold;
use crate::store::{Attempt, HoldStatus, LockStore, LockStoreExt, Released};

/// For how long a store is asked at least to take something back; longer if the lease is.
const UNDO: Duration = Duration::from_secs(10);

/// The first and the longest pause between two tries.
const UNDO_PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

/// One call of `release`.
struct Release {
    hold: Hold,
    epoch: Epoch,
    round: Round<HoldStatus>,
    /// As many as any of the stores has woken.
    notified: AtomicUsize,
    until: Instant,
}

/// One call of `withdraw`.
struct Withdrawal {
    attempt: Attempt,
    unanswered: bool,
    round: Round<()>,
    until: Instant,
}

impl<S: LockStore> QuorumStore<S> {
    /// Releases everywhere. A try that no majority answered may be repeated: what the stores said is remembered.
    pub(super) async fn end(&self, hold: &Hold) -> Result<Released, StoreError> {
        let entry = Arc::new(self.shared.ledger.reopen(hold));
        let release = Arc::new(Release {
            hold: hold.clone(),
            epoch: entry.end(),
            round: Round::new(self.count()),
            notified: AtomicUsize::new(0),
            until: self.deadline(),
        });
        for store in self.all().iter() {
            let turn = entry.turn(store);
            self.shared.running.spawn(self.clone().release_in(
                release.clone(),
                entry.clone(),
                store,
                turn,
            ));
        }
        let Release { round, until, .. } = &*release;
        let released = || entry.released(self.majority());
        let decided = |votes: &[Option<_>]| released().is_some() || all_voted(votes);
        round.wait(*until, decided).await;
        let (standing, failed) = round.close(|votes| match released() {
            Some(standing) => (Verdict::Carried, (Ok(standing), failures(votes))),
            None => {
                let answered = votes.iter().flatten().any(Result::is_ok);
                let error = no_majority(self.majority(), votes, answered);
                (Verdict::Failed, (Err(error), Members::default()))
            }
        });
        if standing.is_ok() {
            entry.retire(release.epoch);
        }
        for store in failed.iter() {
            let turn = entry.turn(store);
            self.shared.running.spawn(self.clone().release_later(
                undoing(hold),
                entry.clone(),
                store,
                turn,
            ));
        }
        let notified = release.notified.load(Ordering::Relaxed);
        standing.map(|status| Released::new(status, notified))
    }

    /// Ends in one store what is released already.
    async fn release_later(
        self,
        attempt: Attempt,
        entry: Arc<Opened>,
        store: usize,
        mut turn: Turn,
    ) {
        turn.begin().await;
        self.undo(&attempt, &entry, store).await;
    }

    async fn release_in(
        self,
        release: Arc<Release>,
        entry: Arc<Opened>,
        store: usize,
        mut turn: Turn,
    ) {
        turn.begin().await;
        let Release {
            hold,
            epoch,
            round,
            notified,
            until,
        } = &*release;
        let answer = match entry.ended(*epoch, store) {
            Some(standing) => Ok(standing),
            None => {
                let released = self.shared.stores[store].release_one(hold);
                let answer = self.heard(store, *until, released).await.map(|released| {
                    notified.fetch_max(released.notified, Ordering::Relaxed);
                    released.status
                });
                entry.note_release(*epoch, store, &answer);
                answer
            }
        };
        let failed = !matches!(answer, Ok(HoldStatus::Held | HoldStatus::Gone));
        // An undecided release is tried again.
        if round.cast(store, answer) == Some(Verdict::Carried) && failed {
            self.undo(&undoing(hold), &entry, store).await;
        }
    }

    /// Withdraws everywhere.
    pub(super) async fn take_back(
        &self,
        attempt: &Attempt,
        unanswered: bool,
    ) -> Result<(), StoreError> {
        let entry = Arc::new(self.shared.ledger.reopen(&attempt.hold));
        let epoch = entry.end();
        let withdrawal = Arc::new(Withdrawal {
            attempt: attempt.clone(),
            unanswered,
            round: Round::new(self.count()),
            until: self.deadline(),
        });
        for store in self.all().iter() {
            let turn = entry.turn(store);
            self.shared.running.spawn(self.clone().withdraw_one(
                withdrawal.clone(),
                entry.clone(),
                store,
                turn,
            ));
        }
        let majority = self.majority();
        let done = |votes: &[Option<Result<(), _>>]| {
            votes.iter().flatten().filter(|vote| vote.is_ok()).count() >= majority
        };
        let decided = |votes: &[Option<_>]| done(votes) || all_voted(votes);
        withdrawal.round.wait(withdrawal.until, decided).await;
        let result = withdrawal.round.close(|votes| match done(votes) {
            true => (Verdict::Carried, Ok(())),
            false => (Verdict::Failed, Err(no_majority(majority, votes, true))),
        });
        if result.is_ok() {
            entry.retire(epoch);
        }
        result
    }

    /// Withdraws in one store, for as long as it takes if the attempt may have left something there.
    async fn withdraw_one(
        self,
        withdrawal: Arc<Withdrawal>,
        entry: Arc<Opened>,
        store: usize,
        mut turn: Turn,
    ) {
        turn.begin().await;
        let Withdrawal { attempt, round, .. } = &*withdrawal;
        let unanswered = withdrawal.unanswered || entry.is_spent(store);
        let touched = entry.touched(store);
        if !touched {
            // Where nothing was left, nothing is to be taken back.
            round.cast(store, Ok(()));
        }
        let withdrawn = self.shared.stores[store].withdraw(attempt, unanswered);
        let answer = self.heard(store, withdrawal.until, withdrawn).await;
        if touched {
            let failed = answer.is_err();
            round.cast(store, answer);
            if !failed {
                return;
            }
            self.undo_from(attempt, &entry, store, withdrawal.until)
                .await;
        }
    }

    /// Takes back whatever one store carries of an attempt, trying again until it answers or the lease is over.
    pub(super) async fn undo(&self, attempt: &Attempt, entry: &Entry, store: usize) {
        self.undo_from(attempt, entry, store, Instant::now()).await;
    }

    async fn undo_from(&self, attempt: &Attempt, entry: &Entry, store: usize, begun: Instant) {
        if !entry.touched(store) {
            return;
        }
        let over = after(begun, attempt.lease.max(UNDO));
        let (mut pause, longest) = UNDO_PAUSE;
        loop {
            let unanswered = entry.is_spent(store);
            let until = self.deadline();
            let withdrawn = self.shared.stores[store].withdraw(attempt, unanswered);
            let Err(error) = self.heard(store, until, withdrawn).await else {
                return;
            };
            if matches!(
                error.kind(),
                StoreErrorKind::Refused | StoreErrorKind::Conflict
            ) || Instant::now() >= over
            {
                tracing::debug!(%error, store, "could not take an attempt back; its lease will");
                return;
            }
            sleep(pause.mul_f64(0.75 + fastrand::f64() / 4.0)).await;
            pause = (pause * 2).min(longest);
        }
    }
}

fn all_voted<T>(votes: &[Option<Vote<T>>]) -> bool {
    votes.iter().all(Option::is_some)
}

fn failures<T>(votes: &[Option<Vote<T>>]) -> Members {
    let failed = |&store: &usize| matches!(votes[store], Some(Err(_)));
    (0..votes.len()).filter(failed).collect()
}

/// An attempt to name a hold that is to be undone.
fn undoing(hold: &Hold) -> Attempt {
    Attempt {
        hold: hold.clone(),
        lease: Duration::ZERO,
        patience: None,
        in_line: false,
        fencing: None,
    }
}
