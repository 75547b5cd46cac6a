//! Renewing holds, and asking about them.

use std::future::Future;
use std::sync::Arc;

use tokio::time::Instant;

use super::carriers::Carriers;
use super::ledger::Opened;
use super::members::Members;
use super::round::{Round, Verdict, Vote};
use super::tally::no_majority;
use super::{QuorumStore, after};
use crate::error::StoreError;
use crate::lock::Hold;
use crate::store::{HoldStatus, LockStore, Renewal};

/// What was known of a hold when the question was sent.
struct Sample {
    entry: Option<Opened>,
    carriers: Carriers,
    /// How long the question waits for the stores to decide about this hold.
    until: Instant,
}

type Votes = [Option<Vote<Vec<HoldStatus>>>];

impl<S: LockStore> QuorumStore<S> {
    /// Renews everywhere. Each hold is decided for itself and has its own time: a hold with a short lease shortens the
    /// time of no other, and an undecided one is [`HoldStatus::Unknown`].
    pub(super) async fn survey_renewing(
        &self,
        renewals: &[Renewal],
    ) -> Result<Vec<HoldStatus>, StoreError> {
        let now = Instant::now();
        let sample = |renewal: &Renewal| self.sample(&renewal.hold, self.until(now, renewal.lease));
        let samples: Vec<_> = renewals.iter().map(sample).collect();
        let renewals: Arc<[Renewal]> = renewals.into();
        let asked = renewals.clone();
        let round = self.poll(&samples, Carriers::renewed, move |quorum, store| {
            let renewals = asked.clone();
            async move { quorum.shared.stores[store].renew(&renewals).await }
        });
        round.await.close(|votes| {
            let decision = self.decide(&samples, votes, Carriers::renewed, true);
            let statuses = decision.iter().flatten();
            for ((sample, status), renewal) in samples.iter().zip(statuses).zip(&*renewals) {
                if let (Some(entry), HoldStatus::Held) = (&sample.entry, status) {
                    entry.renewed(after(now, renewal.lease));
                }
            }
            (Verdict::Carried, decision)
        })
    }

    /// Asks everywhere. An undecided hold is [`HoldStatus::Unknown`].
    pub(super) async fn survey(&self, holds: &[Hold]) -> Result<Vec<HoldStatus>, StoreError> {
        let until = self.deadline();
        let samples: Vec<_> = holds.iter().map(|hold| self.sample(hold, until)).collect();
        let holds: Arc<[Hold]> = holds.into();
        let round = self.poll(&samples, Carriers::unbroken, move |quorum, store| {
            let holds = holds.clone();
            async move { quorum.shared.stores[store].check(&holds).await }
        });
        round.await.close(|votes| {
            let decision = self.decide(&samples, votes, Carriers::unbroken, false);
            (Verdict::Carried, decision)
        })
    }

    /// What the votes say of each hold. The question fails if they decide about none because too few stores answered.
    fn decide(
        &self,
        samples: &[Sample],
        votes: &Votes,
        rule: Rule,
        touched: bool,
    ) -> Result<Vec<HoldStatus>, StoreError> {
        let counts = self.counts(samples, votes, rule);
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

    fn sample(&self, hold: &Hold, until: Instant) -> Sample {
        let foreign = Carriers {
            counted: self.all(),
            late: Members::default(),
        };
        let entry = self.shared.ledger.find(hold);
        let carriers = entry.as_ref().map_or(foreign, |entry| entry.carriers());
        Sample {
            entry,
            carriers,
            until,
        }
    }

    /// Asks every store, and waits until the answers decide about every hold, or until the time of those that are
    /// undecided is over.
    async fn poll<F>(
        &self,
        samples: &[Sample],
        rule: Rule,
        ask: impl Fn(Self, usize) -> F,
    ) -> Arc<Round<Vec<HoldStatus>>>
    where
        F: Future<Output = Vote<Vec<HoldStatus>>> + Send + 'static,
    {
        let round = Arc::new(Round::new(self.count()));
        let mut ends: Vec<Instant> = samples.iter().map(|sample| sample.until).collect();
        ends.sort_unstable();
        ends.dedup();
        let Some(&last) = ends.last() else {
            return round;
        };
        for store in self.all().iter() {
            let (quorum, round) = (self.clone(), round.clone());
            let answer = ask(self.clone(), store);
            tokio::spawn(async move {
                let answer = quorum.heard(store, last, answer).await;
                round.cast(store, answer);
            });
        }
        for end in ends {
            // Holds whose time ended before are not waited for.
            let decided = |votes: &Votes| {
                let counts = self.counts(samples, votes, rule);
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

    /// What the votes say about each hold. A hold that is proved unbroken gains the stores that had joined it.
    fn counts(&self, samples: &[Sample], votes: &Votes, rule: Rule) -> Vec<Option<HoldStatus>> {
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
            rule(sample.carriers, majority, held, gone)
        };
        samples.iter().enumerate().map(count).collect()
    }
}

/// What makes a hold held, or gone.
type Rule = fn(Carriers, usize, Members, Members) -> Option<HoldStatus>;
