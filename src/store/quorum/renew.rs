//! Renewals and checks of holds.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::QuorumStore;
use super::acquire::REMEMBERED;
use super::carriers::Carriers;
use super::hold::{Epoch, HoldRow};
use super::majority::{Conclusion, MajorityCall, Vote, Votes, answered, no_majority};
use super::members::Members;
use crate::error::StoreError;
use crate::limits::after;
use crate::store::{HoldStatus, LockStore, Renewal};

/// The state of a hold when the question was sent.
struct HoldQuestion {
    hold: HoldRow,
    carriers: Carriers,
    epoch: Epoch,
    /// The lease that it is to have; `None`: it is only checked.
    lease: Option<Duration>,
    /// How long the question waits for the stores to decide about this hold.
    until: Instant,
}

type Statuses = Vec<HoldStatus>;

impl<S: LockStore> QuorumStore<S> {
    /// Asks every store. Each hold has its own decision and its own time limit, so a short lease does not shorten the
    /// limit of another hold. An undecided hold is [`HoldStatus::Unknown`].
    pub(super) async fn renew_majority(
        &self,
        renewals: &[Renewal],
    ) -> Result<Vec<HoldStatus>, StoreError> {
        let now = Instant::now();
        let one = |renewal| self.one(renewal, now);
        let asked: Vec<_> = renewals.iter().map(one).collect();
        let call = self.poll(&asked, renewals.into()).await;
        call.close(|votes| {
            let decision = self.decide(&asked, votes);
            for (one, status) in asked.iter().zip(decision.iter().flatten()) {
                if let (HoldStatus::Held, Some(lease)) = (status, one.lease) {
                    let lease = lease.saturating_add(REMEMBERED);
                    one.hold.lock().renewed(after(now, lease));
                }
            }
            (Conclusion::Majority, decision)
        })
    }

    /// Decides about each hold. The question fails if too few stores answered to decide about any hold.
    fn decide(&self, asked: &[HoldQuestion], votes: &Votes<Statuses>) -> Vote<Statuses> {
        let counts = self.counts(asked, votes);
        if counts.iter().all(Option::is_none) && answered(votes) < self.majority_count() {
            let has_effect = asked.iter().any(|one| one.lease.is_some());
            return Err(no_majority(self.majority_count(), votes, has_effect));
        }
        let known = |status: Option<_>| status.unwrap_or(HoldStatus::Unknown);
        Ok(counts.into_iter().map(known).collect())
    }

    fn one(&self, renewal: &Renewal, now: Instant) -> HoldQuestion {
        let hold = self.known(&renewal.hold);
        let (carriers, epoch) = {
            let hold = hold.lock();
            (hold.carriers, hold.epoch)
        };
        HoldQuestion {
            hold,
            carriers,
            epoch,
            lease: renewal.lease,
            until: match renewal.lease {
                Some(lease) => self.until(now, lease),
                None => self.deadline(),
            },
        }
    }

    /// Asks every store, and waits until the answers decide about every hold, or until the time limits of the undecided
    /// holds have passed. An empty batch asks whether a majority answers.
    async fn poll(
        &self,
        asked: &[HoldQuestion],
        renewals: Arc<[Renewal]>,
    ) -> Arc<MajorityCall<Statuses>> {
        let mut ends: Vec<Instant> = asked.iter().map(|one| one.until).collect();
        if asked.is_empty() {
            ends.push(self.deadline());
        }
        ends.sort_unstable();
        ends.dedup();
        let last = ends[ends.len() - 1];
        let call = self.ask_all(|store| {
            let (quorum, renewals) = (self.clone(), renewals.clone());
            async move {
                let answer = quorum.shared.stores[store].renew(&renewals);
                quorum.timed(store, last, answer).await
            }
        });
        for end in ends {
            // Holds whose time limit has passed are not waited for.
            let decided = |votes: &Votes<Statuses>| {
                let counts = self.counts(asked, votes);
                let mut counts = counts.iter().zip(asked);
                let counted = !asked.is_empty() || answered(votes) >= self.majority_count();
                votes.iter().all(Option::is_some)
                    || counted && counts.all(|(count, one)| count.is_some() || one.until < end)
            };
            if call.wait(end, decided).await {
                break;
            }
        }
        call
    }

    /// The votes about each hold. If they prove that a hold is unbroken, the stores that granted it late count from now
    /// on.
    fn counts(&self, asked: &[HoldQuestion], votes: &Votes<Statuses>) -> Vec<Option<HoldStatus>> {
        let majority = self.majority_count();
        let count = |(index, one): (usize, &HoldQuestion)| {
            let that_say = |status| -> Members {
                let says = |&store: &usize| matches!(&votes[store], Some(Ok(all)) if all.get(index) == Some(&status));
                (0..votes.len()).filter(says).collect()
            };
            let (held, gone) = (that_say(HoldStatus::Held), that_say(HoldStatus::Gone));
            let unbroken = one.carriers.unbroken(majority, held, gone);
            if unbroken == Some(HoldStatus::Held) {
                let mut hold = one.hold.lock();
                if hold.epoch == one.epoch {
                    hold.carriers.follow(one.carriers.late);
                }
            }
            // The lease is renewed if a majority says so, late stores included. A hold that cannot be confirmed any more is gone,
            // so that its holder learns of the loss now and not at the release.
            let renewed = one.lease.is_some() && held.len() >= majority;
            unbroken.or(renewed.then_some(HoldStatus::Held))
        };
        asked.iter().enumerate().map(count).collect()
    }
}
