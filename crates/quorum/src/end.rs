//! Ending a hold or an attempt: releases, withdrawals, and what is taken back in the background.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower_distributed_lock::store::{Attempt, HoldStatus, LockStoreExt, Released};
use tower_distributed_lock::{Hold, LockStore, StoreError, StoreErrorKind};

use crate::QuorumStore;
use crate::acquire::is_unanswered;
use crate::ballot::{Ballot, Paper, Verdict, Vote, Votes, answered, most_answered};
use crate::ledger::{Place, after};

/// For how long a store is asked at least to withdraw an attempt; longer if its lease is.
const WITHDRAWAL: Duration = Duration::from_secs(10);

/// The pauses between two tries: the first, and the longest. They double.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

impl<S: LockStore> QuorumStore<S> {
    /// Releases everywhere. A release that too few stores answered may be repeated: what they said is kept.
    pub(crate) async fn release_majority(&self, hold: &Hold) -> Vote<Released> {
        let entry = self.shared.ledger.ending(hold, self.stores());
        let ballot = Ballot::new(self.stores());
        // It names the hold where the release has to be taken over by a withdrawal.
        let attempt = Attempt::new(hold.clone(), Duration::ZERO).in_line(false);
        self.in_order(&attempt, &entry, |place| place.release(ballot.paper()));
        let decide = |votes: &Votes<Released>| {
            let status = entry.state().unbroken(|_, seat| seat.ended)?;
            // As many as any of the stores has woken.
            let notified = votes.iter().flatten().flatten().map(|vote| vote.notified);
            Some(Released::new(status, notified.max().unwrap_or_default()))
        };
        let has_effect = |votes: &Votes<_>| answered(votes) > 0;
        let released = ballot.decision(self.deadline(), decide, has_effect).await?;
        entry.forget();
        Ok(released)
    }

    /// Withdraws everywhere.
    pub(crate) async fn withdraw_majority(&self, attempt: Attempt, unanswered: bool) -> Vote<()> {
        let entry = self.shared.ledger.ending(&attempt.hold, self.stores());
        let ballot = Ballot::new(self.stores());
        self.in_order(&attempt, &entry, |place| {
            place.withdraw(ballot.paper(), unanswered)
        });
        let withdrawn = ballot.decision(self.deadline(), most_answered, |_| true);
        withdrawn.await?;
        entry.forget();
        Ok(())
    }
}

impl<S: LockStore> Place<S> {
    async fn release(self, paper: Arc<Paper<Released>>) {
        let (used, ended) = self.seat(|seat| (seat.used, seat.ended));
        let answer = match ended {
            Some(status @ (HoldStatus::Held | HoldStatus::Gone)) => Ok(status.into()),
            _ if !used => Ok(HoldStatus::Gone.into()),
            _ => self.store().release_one(&self.attempt.hold).await,
        };
        let status = match &answer {
            Ok(released) => Some(released.status),
            Err(error) => match error.kind() {
                StoreErrorKind::Unreachable | StoreErrorKind::Transient => None,
                _ => Some(HoldStatus::Unknown),
            },
        };
        let is_over = self.seat(|seat| {
            match (status, seat.ended) {
                // An earlier release may have ended the hold.
                (Some(HoldStatus::Gone), Some(HoldStatus::Unknown)) | (None, _) => {}
                _ => seat.ended = status,
            }
            let is_over = matches!(status, Some(HoldStatus::Held | HoldStatus::Gone));
            seat.used &= !is_over;
            is_over
        });
        paper.cast(self.at, answer);
        // A release that is not decided is tried again by the caller.
        if !is_over && paper.verdict().await == Verdict::Agreed {
            self.undo(false).await;
        }
    }

    async fn withdraw(self, paper: Arc<Paper<()>>, unanswered: bool) {
        let withdrawn = self.withdraw_once(unanswered).await;
        paper.cast(self.at, withdrawn);
        self.undo(unanswered).await;
    }

    /// Takes back whatever the store has of the attempt, and tries again until it answers or the lease is over.
    pub(crate) async fn undo(&self, unanswered: bool) {
        let over = after(Instant::now(), self.attempt.lease.max(WITHDRAWAL));
        let mut pause = PAUSE.0;
        while let Err(error) = self.withdraw_once(unanswered).await {
            if is_final(&error) || Instant::now() >= over {
                tracing::debug!(%error, store = self.at, "could not withdraw an attempt: its lease ends it");
                return;
            }
            sleep(pause.mul_f64(0.75 + fastrand::f64() / 4.0)).await;
            pause = PAUSE.1.min(pause * 2);
        }
    }

    /// Withdraws, if there is something to withdraw.
    async fn withdraw_once(&self, unanswered: bool) -> Vote<()> {
        let (used, doubtful) = self.seat(|seat| (seat.used, seat.doubtful));
        if !used {
            return Ok(());
        }
        let unanswered = unanswered || doubtful;
        let answer = self.store().withdraw(&self.attempt, unanswered).await;
        self.seat(|seat| {
            seat.used = answer.is_err();
            // It may still take effect, even on a later hold with this name.
            seat.doubtful |= answer.as_ref().is_err_and(is_unanswered);
        });
        answer
    }
}

fn is_final(error: &StoreError) -> bool {
    matches!(
        error.kind(),
        StoreErrorKind::Refused | StoreErrorKind::Conflict
    )
}
