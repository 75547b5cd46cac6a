//! The operations of a store: each asks all stores, answers when enough of them have, and goes on in the background.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tower_distributed_lock::LockKey;
use tower_distributed_lock::audit::Audit;
use tower_distributed_lock::error::StoreError;
use tower_distributed_lock::lock::Hold;
use tower_distributed_lock::store::{
    Attempt, Capabilities, Feature, HoldStatus, LockStore, Outcome, Record, Released, Renewal,
    Unsupported, Wakeups,
};

use crate::ballot::{Effect, Votes, majority, most_answered, no_majority, open};
use crate::grants::{grants, is_grant, outcome};
use crate::ledger::{FOREIGN, Left, NEW, Proof};
use crate::wakeups::listen;
use crate::{QuorumStore, Shared};

/// How long the other stores may take at least when a majority has granted.
const GRACE: Duration = Duration::from_millis(5);

impl<S: LockStore> LockStore for QuorumStore<S> {
    async fn acquire(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
        self.require(Feature::Mode(attempt.hold.mode))?;
        if attempt.fencing.is_some() {
            self.require(Feature::Fencing)?;
        }
        let attempt = outside_lines(attempt);
        let started = Instant::now();
        let until = self.deadline(Some(attempt.lease));
        let entry = self.entry(&attempt.hold, NEW, attempt.lease);
        let is_held = entry.known().wanted.take() == Some(Left::Hold);
        let mut ballot = self
            .ballot(|quorum, at| quorum.acquire_in(at, attempt.clone(), entry.clone(), is_held));
        let is_certain = |votes: &Votes<_>| outcome(votes, open(votes)).is_some();
        ballot.wait(until, is_certain).await;
        // Only what has granted before the answer counts when the hold is confirmed: the others get the same time again.
        let grace = Instant::now() + GRACE.max(started.elapsed());
        let is_refused = |votes: &Votes<_>| grants(votes) < majority(votes.len());
        ballot.wait(grace.min(until), is_refused).await;
        self.shared.running.spawn(ballot.rest());

        // Something must be left of the lease by clocks that drift by 1 % and 2 ms.
        let drift = attempt.lease / 100 + Duration::from_millis(2);
        let is_in_time = started.elapsed() + drift < attempt.lease;
        let votes = &ballot.votes;
        let outcome = outcome(votes, 0).filter(|_| is_in_time);
        let mut outcome = outcome.ok_or_else(|| no_majority(votes, Effect::Attempt));
        let pace = self.pace(&attempt.hold.key);
        // What the outcome has no use for is taken back. A grant that was needed stays, and so does a waiter.
        let wanted = match &mut outcome {
            Ok(Outcome::Granted { .. }) => {
                pace.granted();
                Left::Hold
            }
            Ok(Outcome::Refused { retry_after }) => {
                if grants(votes) > 0 {
                    *retry_after = pace.pause(started.elapsed()).min(*retry_after);
                }
                Left::Waiter
            }
            Err(_) => Left::Nothing,
        };
        let has_granted = |at: usize| votes[at].as_ref().is_some_and(is_grant);
        entry.known().decide(wanted, has_granted);
        self.clear(&attempt, &entry);
        outcome
    }

    /// Each hold has its own decision and its own limit, so that a short lease does not shorten the limit of another hold. A hold
    /// that is not decided is [`HoldStatus::Unknown`]. An empty batch asks whether a majority answers.
    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<HoldStatus>, StoreError> {
        let asked = |renewal: &Renewal| {
            let lease = renewal.lease.unwrap_or_default();
            let entry = self.entry(&renewal.hold, FOREIGN, lease);
            (entry, self.deadline(renewal.lease))
        };
        let holds: Vec<_> = renewals.iter().map(asked).collect();
        // What the votes say about a hold.
        let status = |n: usize, votes: &Votes<Vec<HoldStatus>>| {
            let said = |at: usize, _| votes[at].as_ref()?.as_ref().ok()?.get(n).copied();
            holds[n].0.known().unbroken(said)
        };
        let renewals: Arc<[Renewal]> = renewals.into();
        let mut ballot = self.ballot(|quorum, at| {
            let renewals = renewals.clone();
            async move { quorum.shared.stores[at].renew(&renewals).await }
        });
        let mut limits: Vec<_> = holds.iter().map(|(_, until)| *until).collect();
        limits.push(self.deadline(None));
        limits.sort_unstable();
        for limit in limits {
            let decided = |votes: &Votes<_>| {
                // Holds whose limit has passed are not waited for.
                let mut open = (0..holds.len()).filter(|&n| holds[n].1 >= limit);
                open.all(|n| status(n, votes).is_some())
                    && (!holds.is_empty() || most_answered(votes).is_some())
            };
            if ballot.wait(limit, decided).await {
                break;
            }
        }
        self.shared.running.spawn(ballot.rest());
        let votes = &ballot.votes;
        let statuses: Vec<_> = (0..holds.len()).map(|n| status(n, votes)).collect();
        if statuses.iter().all(Option::is_none) && most_answered(votes).is_none() {
            let effect = match renewals.iter().any(|renewal| renewal.lease.is_some()) {
                true => Effect::Change,
                false => Effect::Nothing,
            };
            return Err(no_majority(votes, effect));
        }
        let known = |status: Option<_>| status.unwrap_or(HoldStatus::Unknown);
        Ok(statuses.into_iter().map(known).collect())
    }

    /// A release that too few stores answered may be repeated: what they said is kept.
    async fn release(&self, hold: &Hold, record: Option<&Record>) -> Result<Released, StoreError> {
        if record.is_some() {
            self.require(Feature::Records)?;
        }
        let entry = self.entry(hold, FOREIGN, Duration::ZERO);
        let release = |quorum: Self, at| quorum.release_in(at, hold.clone(), entry.clone());
        let decide = |votes: &Votes<Released>| {
            let carried = |_, proof| (proof == Proof::Released).then_some(HoldStatus::Held);
            let status = entry.known().unbroken(carried)?;
            // As many as any of the stores has woken.
            let notified = votes.iter().flatten().flatten().map(|vote| vote.notified);
            Some(Released::new(status, notified.max().unwrap_or_default()))
        };
        let released = self.ask(Effect::Change, release, decide).await?;
        entry.known().decide(Left::Nothing, |_| false);
        // It names the hold where it has to be withdrawn.
        let attempt = Attempt::new(hold.clone(), Duration::ZERO);
        self.clear(&outside_lines(&attempt), &entry);
        Ok(released)
    }

    async fn withdraw(&self, attempt: &Attempt, unanswered: bool) -> Result<(), StoreError> {
        let attempt = outside_lines(attempt);
        let entry = self.entry(&attempt.hold, FOREIGN, attempt.lease);
        entry.known().decide(Left::Nothing, |_| false);
        let withdraw =
            |quorum: Self, at| quorum.clear_in(at, attempt.clone(), entry.clone(), unanswered);
        self.ask(Effect::Change, withdraw, most_answered).await
    }

    /// Returns when a majority has answered. Every holder has its hold in a store of that majority, so that its release is heard.
    async fn subscribe(&self, attempt: &Attempt) -> Result<Wakeups, StoreError> {
        let attempt = outside_lines(attempt);
        let (signal, wakeups) = watch::channel(());
        let (pace, over) = (self.pace(&attempt.hold.key), CancellationToken::new());
        let subscribe = |quorum: Self, at: usize| {
            let attempt = attempt.clone();
            let (pace, signal, over) = (pace.clone(), signal.clone(), over.clone());
            async move {
                let heard = quorum.shared.stores[at].subscribe(&attempt).await?;
                tokio::spawn(listen(heard, pace, signal, over));
                Ok(())
            }
        };
        self.ask(Effect::Nothing, subscribe, most_answered).await?;
        Ok(Wakeups::new(wakeups, ()))
    }

    async fn audit(&self) -> Result<Audit, StoreError> {
        Ok(self.audit_all().await)
    }

    /// Holds are renewed on the runtime of the first store that has one.
    fn capabilities(&self) -> Capabilities {
        let (shared, ending) = (self.shared.clone(), self.clone());
        (self.inspected)(self, self.shared.can.clone())
            .renewal_runtime(move || shared.members.iter().find_map(Capabilities::runtime))
            .on_shutdown(move || ending.clone().end())
    }

    /// Stores with partitions have the same ones.
    fn partition(&self, key: &LockKey) -> Result<u16, Unsupported> {
        let mut stores = self.shared.stores.iter();
        stores.try_fold(0, |most, store| Ok(most.max(store.partition(key)?)))
    }
}

impl<S: LockStore> QuorumStore<S> {
    /// The end of what the stores go on with. One that does not answer in time does not block the caller.
    async fn end(self) {
        let Shared {
            running, members, ..
        } = &*self.shared;
        // Only a closed tracker is waited for. Tasks may be spawned all the same.
        running.close();
        drop(timeout(self.store_timeout, running.wait()).await);
        join_all(members.iter().map(Capabilities::ended)).await;
    }
}

/// The attempt without a place in line: each store has a line of its own, and if different attempts were first in different stores,
/// none would have a majority.
fn outside_lines(attempt: &Attempt) -> Attempt {
    attempt.clone().in_line(false)
}
