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
use crate::store::{DynStore, Standing};

/// How long an owner check is tried.
const BUDGET: Duration = Duration::from_secs(1);

pub(super) type Asker = oneshot::Sender<Result<Standing, StoreError>>;

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

/// Asks the store, and tells everybody.
pub(super) async fn answer(store: Arc<dyn DynStore>, checks: Vec<Check>) {
    for batch in in_batches(by_hold(checks)) {
        let holds = batch.iter().map(|(live, _)| live.hold.clone()).collect();
        let answers = ask(&store, holds).await;
        for (index, (_, askers)) in batch.into_iter().enumerate() {
            let answer = answers.as_ref().map(|standings| standings[index]);
            for asker in askers {
                // Whoever asked may have gone.
                let _ = asker.send(answer.map_err(Clone::clone));
            }
        }
    }
}

/// Asks which holds there are; a question that changes nothing is asked again when it fails.
async fn ask(store: &Arc<dyn DynStore>, holds: Vec<Hold>) -> Result<Vec<Standing>, StoreError> {
    let over = Instant::now() + BUDGET;
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
fn by_hold(checks: Vec<Check>) -> Vec<(Arc<LiveHold>, Vec<Asker>)> {
    let mut places = HashMap::with_capacity(checks.len());
    let mut holds: Vec<(Arc<LiveHold>, Vec<Asker>)> = Vec::new();
    for Check { live, answer } in checks {
        let place = *places.entry(Arc::as_ptr(&live)).or_insert(holds.len());
        match holds.get_mut(place) {
            Some((_, askers)) => askers.push(answer),
            None => holds.push((live, vec![answer])),
        }
    }
    holds
}
