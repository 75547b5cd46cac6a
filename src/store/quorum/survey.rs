//! Renewing holds, and asking about them.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::carriers::Carriers;
use super::ledger::Opened;
use super::members::Members;
use super::round::{Round, Verdict, Vote};
use super::tally::no_majority;
use super::{QuorumStore, after};
use crate::error::StoreError;
use crate::lock::Hold;
use crate::store::{LockStore, Renewal, Standing};

/// What was known of a hold when the question was sent.
struct Sample {
    entry: Option<Opened>,
    carriers: Carriers,
}

type Votes = [Option<Vote<Vec<Standing>>>];

impl<S: LockStore> QuorumStore<S> {
    /// Renews everywhere. A hold whose renewal is undecided fails the question, so that it is asked again. But one that
    /// hangs on a dead store must not take the others of its batch along: after a quarter of its lease it is gone.
    pub(super) async fn survey_renewing(
        &self,
        renewals: &[Renewal],
    ) -> Result<Vec<Standing>, StoreError> {
        let now = Instant::now();
        let samples = self.sample(renewals.iter().map(|renewal| &renewal.hold));
        let shortest = renewals.iter().map(|renewal| renewal.lease).min();
        let until = self.until(now, shortest.unwrap_or_default());
        let renewals: Arc<[Renewal]> = renewals.into();
        let asked = renewals.clone();
        let round = self.poll(until, &samples, Carriers::renewed, move |quorum, store| {
            let renewals = asked.clone();
            async move { quorum.shared.stores[store].renew(&renewals).await }
        });
        round.await.close(|votes| {
            let counts = self.counts(&samples, votes, Carriers::renewed);
            let answered = votes.iter().flatten().filter(|vote| vote.is_ok()).count();
            let decide = |((sample, count), renewal): ((&Sample, Option<Standing>), &Renewal)| {
                let hopeless = count.is_none() && sample.doubtful_for(now) >= renewal.lease / 4;
                count.or((hopeless && answered >= self.majority()).then_some(Standing::Gone))
            };
            let members = samples.iter().zip(counts).zip(&*renewals);
            // All of them, so that every doubt begins to count.
            let standings: Vec<_> = members.map(decide).collect();
            let Some(standings) = standings.into_iter().collect::<Option<Vec<_>>>() else {
                let error = no_majority(self.majority(), votes, true);
                return (Verdict::Failed, Err(error));
            };
            for ((sample, standing), renewal) in samples.iter().zip(&standings).zip(&*renewals) {
                if let (Some(entry), Standing::Held) = (&sample.entry, standing) {
                    entry.renewed(after(now, renewal.lease));
                }
            }
            (Verdict::Carried, Ok(standings))
        })
    }

    /// Asks everywhere. An undecided hold fails the question, unless others in it are decided: they are not to go
    /// unconfirmed for it, and it counts as gone.
    pub(super) async fn survey(&self, holds: &[Hold]) -> Result<Vec<Standing>, StoreError> {
        let samples = self.sample(holds);
        let until = self.deadline();
        let holds: Arc<[Hold]> = holds.into();
        let round = self.poll(until, &samples, Carriers::unbroken, move |quorum, store| {
            let holds = holds.clone();
            async move { quorum.shared.stores[store].check(&holds).await }
        });
        round.await.close(|votes| {
            let counts = self.counts(&samples, votes, Carriers::unbroken);
            if !counts.is_empty() && counts.iter().all(Option::is_none) {
                let error = no_majority(self.majority(), votes, false);
                return (Verdict::Failed, Err(error));
            }
            let standings = counts
                .into_iter()
                .map(|standing| standing.unwrap_or(Standing::Gone));
            (Verdict::Carried, Ok(standings.collect()))
        })
    }

    fn sample<'a>(&self, holds: impl IntoIterator<Item = &'a Hold>) -> Vec<Sample> {
        let foreign = Carriers {
            counted: self.all(),
            late: Members::default(),
        };
        holds
            .into_iter()
            .map(|hold| {
                let entry = self.shared.ledger.find(hold);
                let carriers = entry.as_ref().map_or(foreign, |entry| entry.carriers());
                Sample { entry, carriers }
            })
            .collect()
    }

    /// Asks every store, and waits until the answers decide about every hold.
    async fn poll<F>(
        &self,
        until: Instant,
        samples: &[Sample],
        rule: Rule,
        ask: impl Fn(Self, usize) -> F,
    ) -> Arc<Round<Vec<Standing>>>
    where
        F: Future<Output = Vote<Vec<Standing>>> + Send + 'static,
    {
        let round = Arc::new(Round::new(self.count()));
        for store in self.all().iter() {
            let (quorum, round) = (self.clone(), round.clone());
            let answer = ask(self.clone(), store);
            tokio::spawn(async move {
                let answer = quorum.heard(store, until, answer).await;
                round.cast(store, answer);
            });
        }
        let decided = |votes: &Votes| {
            votes.iter().all(Option::is_some)
                || self
                    .counts(samples, votes, rule)
                    .iter()
                    .all(Option::is_some)
        };
        round.wait(until, decided).await;
        round
    }

    /// What the votes say about each hold. A hold that is proved unbroken gains the stores that had joined it.
    fn counts(&self, samples: &[Sample], votes: &Votes, rule: Rule) -> Vec<Option<Standing>> {
        let majority = self.majority();
        let count = |(index, sample): (usize, &Sample)| {
            let that_say = |standing| -> Members {
                let says = |&store: &usize| matches!(&votes[store], Some(Ok(all)) if all.get(index) == Some(&standing));
                (0..votes.len()).filter(says).collect()
            };
            let (held, gone) = (that_say(Standing::Held), that_say(Standing::Gone));
            if let Some(entry) = &sample.entry
                && sample.carriers.unbroken(majority, held, gone) == Some(Standing::Held)
            {
                entry.proved(sample.carriers.late);
            }
            rule(sample.carriers, majority, held, gone)
        };
        samples.iter().enumerate().map(count).collect()
    }
}

/// What makes a hold held, or gone.
type Rule = fn(Carriers, usize, Members, Members) -> Option<Standing>;

impl Sample {
    /// For how long it has been undecided, once it is asked for the first time.
    fn doubtful_for(&self, now: Instant) -> Duration {
        let since = self.entry.as_ref().map(|entry| entry.doubtful_since(now));
        since.map_or(Duration::MAX, |since| now - since)
    }
}
