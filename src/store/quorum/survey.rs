//! Renewals and checks of holds.

use std::sync::Arc;

use tokio::time::Instant;

use super::carriers::Carriers;
use super::ledger::Opened;
use super::members::Members;
use super::round::{Round, Verdict, Vote};
use super::tally::no_majority;
use super::{QuorumStore, after};
use crate::error::StoreError;
use crate::store::{HoldStatus, LockStore, Renewal};

/// The state of a hold when the question was sent.
struct Sample {
    entry: Option<Opened>,
    carriers: Carriers,
    /// How long the question waits for the stores to decide about this hold.
    until: Instant,
    /// The rule by which the votes make the hold held or gone.
    rule: Rule,
}

type Rule = fn(Carriers, usize, Members, Members) -> Option<HoldStatus>;

type Votes = [Option<Vote<Vec<HoldStatus>>>];

impl<S: LockStore> QuorumStore<S> {
    /// Asks every store. Each hold has its own decision and its own time limit, so a short lease does not shorten the
    /// limit of another hold. An undecided hold is [`HoldStatus::Unknown`].
    pub(super) async fn survey(&self, renewals: &[Renewal]) -> Result<Vec<HoldStatus>, StoreError> {
        let now = Instant::now();
        let samples: Vec<_> = renewals
            .iter()
            .map(|renewal| self.sample(renewal, now))
            .collect();
        let renewals: Arc<[Renewal]> = renewals.into();
        let round = self.poll(&samples, renewals.clone()).await;
        round.close(|votes| {
            let touched = renewals.iter().any(|renewal| renewal.lease.is_some());
            let decision = self.decide(&samples, votes, touched);
            let statuses = decision.iter().flatten();
            for ((sample, status), renewal) in samples.iter().zip(statuses).zip(&*renewals) {
                if let (Some(entry), HoldStatus::Held, Some(lease)) =
                    (&sample.entry, status, renewal.lease)
                {
                    entry.renewed(after(now, lease));
                }
            }
            (Verdict::Carried, decision)
        })
    }

    /// Decides about each hold. The question fails if too few stores answered to decide about any hold.
    fn decide(
        &self,
        samples: &[Sample],
        votes: &Votes,
        touched: bool,
    ) -> Result<Vec<HoldStatus>, StoreError> {
        let counts = self.counts(samples, votes);
        let answered = votes.iter().flatten().filter(|vote| vote.is_ok()).count();
        let undecided = !counts.is_empty() && counts.iter().all(Option::is_none);
        if undecided && answered < self.majority() {
            return Err(no_majority(self.majority(), votes, touched));
        }
        let statuses = counts
            .into_iter()
            .map(|status| status.unwrap_or(HoldStatus::Unknown));
        Ok(statuses.collect())
    }

    fn sample(&self, renewal: &Renewal, now: Instant) -> Sample {
        let foreign = Carriers {
            counted: self.all(),
            late: Members::default(),
        };
        let entry = self.shared.ledger.find(&renewal.hold);
        let carriers = entry.as_ref().map_or(foreign, |entry| entry.carriers());
        let (until, rule): (_, Rule) = match renewal.lease {
            Some(lease) => (self.until(now, lease), Carriers::renewed),
            None => (self.deadline(), Carriers::unbroken),
        };
        Sample {
            entry,
            carriers,
            until,
            rule,
        }
    }

    /// Asks every store, and waits until the answers decide about every hold, or until the time limits of the undecided
    /// holds have passed.
    async fn poll(
        &self,
        samples: &[Sample],
        renewals: Arc<[Renewal]>,
    ) -> Arc<Round<Vec<HoldStatus>>> {
        let round = Arc::new(Round::new(self.count()));
        let mut ends: Vec<Instant> = samples.iter().map(|sample| sample.until).collect();
        ends.sort_unstable();
        ends.dedup();
        let Some(&last) = ends.last() else {
            return round;
        };
        for store in self.all().iter() {
            let (quorum, round, renewals) = (self.clone(), round.clone(), renewals.clone());
            self.shared.running.spawn(async move {
                let answer = quorum.shared.stores[store].renew(&renewals);
                let answer = quorum.heard(store, last, answer).await;
                round.cast(store, answer);
            });
        }
        for end in ends {
            // Holds whose time limit has passed are not waited for.
            let decided = |votes: &Votes| {
                let counts = self.counts(samples, votes);
                let mut counts = counts.iter().zip(samples);
                votes.iter().all(Option::is_some)
                    || counts.all(|(count, sample)| count.is_some() || sample.until < end)
            };
            if round.wait(end, decided).await {
                break;
            }
        }
        round
    }

    /// The votes about each hold. If they prove that a hold is unbroken, the stores that granted it late count from now
    /// on.
    fn counts(&self, samples: &[Sample], votes: &Votes) -> Vec<Option<HoldStatus>> {
        let majority = self.majority();
        let count = |(index, sample): (usize, &Sample)| {
            let that_say = |standing| -> Members {
                let says = |&store: &usize| matches!(&votes[store], Some(Ok(all)) if all.get(index) == Some(&standing));
                (0..votes.len()).filter(says).collect()
            };
            let (held, gone) = (that_say(HoldStatus::Held), that_say(HoldStatus::Gone));
            if let Some(entry) = &sample.entry
                && sample.carriers.unbroken(majority, held, gone) == Some(HoldStatus::Held)
            {
                entry.proved(sample.carriers.late);
            }
            (sample.rule)(sample.carriers, majority, held, gone)
        };
        samples.iter().enumerate().map(count).collect()
    }
}
