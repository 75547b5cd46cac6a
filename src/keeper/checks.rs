//! Owner checks: whether the store carries a hold now.

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

/// Questions that wait for one another, so that those who ask at about the same time share one.
#[derive(Default)]
pub(super) struct Checks {
    waiting: Vec<Check>,
    /// A batch is on its way; those that come meanwhile share the next one.
    asking: bool,
}

pub(super) struct Check {
    live: Arc<LiveHold>,
    answer: Asker,
}

impl Checks {
    pub(super) fn add(&mut self, live: &Arc<LiveHold>, answer: Asker) {
        self.waiting.push(Check {
            live: live.clone(),
            answer,
        });
    }

    /// What is to be asked now; it is to be [`done`](Checks::done) before there is more.
    pub(super) fn next(&mut self) -> Option<Vec<Check>> {
        if self.waiting.is_empty() || self.asking {
            return None;
        }
        self.asking = true;
        Some(std::mem::take(&mut self.waiting))
    }

    /// Nobody is going to ask what waits.
    pub(super) fn abandon(&mut self) -> Vec<Check> {
        std::mem::take(&mut self.waiting)
    }

    /// Nothing is on its way any more.
    pub(super) fn done(&mut self) {
        self.asking = false;
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
fn by_hold(mut checks: Vec<Check>) -> Vec<(Arc<LiveHold>, Vec<Asker>)> {
    checks.sort_unstable_by_key(|check| Arc::as_ptr(&check.live).addr());
    let mut holds: Vec<(Arc<LiveHold>, Vec<Asker>)> = Vec::new();
    for Check { live, answer } in checks {
        match holds.last_mut() {
            Some((last, askers)) if Arc::ptr_eq(last, &live) => askers.push(answer),
            _ => holds.push((live, vec![answer])),
        }
    }
    holds
}
