//! Owner checks: whether the store carries a hold now.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::live::LiveHold;
use super::{FIRST_BACKOFF, in_batches};
use crate::error::{StoreError, StoreErrorKind};
use crate::lock::Hold;
use crate::store::{DynStore, HoldStatus};

/// How long an owner check is tried.
const BUDGET: Duration = Duration::from_secs(1);

pub(super) type Asker = oneshot::Sender<Result<HoldStatus, StoreError>>;

/// Questions that wait for one another, so that those who ask one part of a store at about the same time share one.
#[derive(Default)]
pub(super) struct Checks {
    /// By the part of the store that they are for.
    waiting: BTreeMap<u16, Vec<Check>>,
    /// The parts that are being asked; checks that come meanwhile share the next question.
    asking: BTreeSet<u16>,
}

pub(super) struct Check {
    live: Arc<LiveHold>,
    answer: Asker,
}

impl Checks {
    pub(super) fn add(&mut self, part: u16, live: &Arc<LiveHold>, answer: Asker) {
        let checks = self.waiting.entry(part).or_default();
        checks.push(Check {
            live: live.clone(),
            answer,
        });
    }

    /// The checks for each part that is not being asked already; it is to be [`done`](Checks::done) before there are more.
    pub(super) fn next(&mut self) -> Vec<(u16, Vec<Check>)> {
        let idle = |part: &u16| !self.asking.contains(part);
        let parts: Vec<u16> = self.waiting.keys().copied().filter(idle).collect();
        let parts = parts.into_iter();
        let checks: Vec<_> = parts
            .filter_map(|part| self.waiting.remove_entry(&part))
            .collect();
        self.asking.extend(checks.iter().map(|(part, _)| *part));
        checks
    }

    /// The part was asked.
    pub(super) fn done(&mut self, part: u16) {
        self.asking.remove(&part);
    }

    /// Nobody asks any more. What waits is to be dropped outside the mutex: whoever asked asks again.
    pub(super) fn abandon(&mut self) -> BTreeMap<u16, Vec<Check>> {
        self.asking.clear();
        std::mem::take(&mut self.waiting)
    }
}

/// A hold, and all that ask about it.
pub(super) type Question = (Arc<LiveHold>, Vec<Asker>);

/// Asks the store and delivers its answers. Returns the questions that the store left undecided.
pub(super) async fn answer(store: &Arc<dyn DynStore>, checks: Vec<Check>) -> Vec<Question> {
    ask_all(store, by_hold(checks), Instant::now() + BUDGET).await
}

/// Asks again about holds that the store left undecided, until it decides or the time for a check is over.
pub(super) async fn ask_again(store: &Arc<dyn DynStore>, mut undecided: Vec<Question>) {
    let over = Instant::now() + BUDGET;
    let mut backoff = FIRST_BACKOFF;
    while !undecided.is_empty() && Instant::now() + backoff < over {
        tokio::time::sleep(backoff).await;
        backoff *= 2;
        undecided = ask_all(store, undecided, over).await;
    }
    for (_, askers) in undecided {
        deliver(askers, Ok(HoldStatus::Unknown));
    }
}

async fn ask_all(
    store: &Arc<dyn DynStore>,
    questions: Vec<Question>,
    over: Instant,
) -> Vec<Question> {
    let mut undecided = Vec::new();
    for batch in in_batches(questions) {
        let holds = batch.iter().map(|(live, _)| live.hold.clone()).collect();
        let answers = ask(store, holds, over).await;
        for (index, (live, askers)) in batch.into_iter().enumerate() {
            match answers.as_ref().map(|statuses| statuses[index]) {
                Ok(HoldStatus::Unknown) => undecided.push((live, askers)),
                answer => deliver(askers, answer.map_err(Clone::clone)),
            }
        }
    }
    undecided
}

fn deliver(askers: Vec<Asker>, answer: Result<HoldStatus, StoreError>) {
    for asker in askers {
        // The asker may have gone.
        let _ = asker.send(answer.clone());
    }
}

/// Asks which holds there are; a question that changes nothing is asked again when it fails.
async fn ask(
    store: &Arc<dyn DynStore>,
    holds: Vec<Hold>,
    over: Instant,
) -> Result<Vec<HoldStatus>, StoreError> {
    let mut backoff = FIRST_BACKOFF;
    loop {
        let error = match store.clone().check(holds.clone()).await {
            Ok(standings) => return Ok(standings),
            Err(error) => error,
        };
        let is_final = matches!(
            error.kind(),
            StoreErrorKind::Refused | StoreErrorKind::Conflict
        );
        if is_final || Instant::now() + backoff >= over {
            return Err(error);
        }
        tokio::time::sleep(backoff).await;
        backoff *= 2;
    }
}

/// Every hold that somebody asks about, once, with all who ask: a hold that is passed on quickly is asked about by each who
/// had it.
///
/// They stay in the order in which they were first asked about: an order of addresses would be another in each run.
fn by_hold(checks: Vec<Check>) -> Vec<Question> {
    let mut places = HashMap::with_capacity(checks.len());
    let mut holds: Vec<Question> = Vec::new();
    for Check { live, answer } in checks {
        let place = *places.entry(Arc::as_ptr(&live)).or_insert(holds.len());
        match holds.get_mut(place) {
            Some((_, askers)) => askers.push(answer),
            None => holds.push((live, vec![answer])),
        }
    }
    holds
}
