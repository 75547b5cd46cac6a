//! Owner checks: whether the store carries a hold now.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Background, Handle};
use crate::backoff::Backoff;
use crate::cleanup::ANSWER_TIME;
use crate::error::StoreError;
use crate::limits::CONFIRMATION;
use crate::store::{BATCH, DynStore, HoldStatus, Renewal};
use crate::sync::Mutex;
use crate::watchdog::LiveHold;

type AnswerSender = oneshot::Sender<Result<HoldStatus, StoreError>>;

/// The partitions with a question under way. The mutex protects the map and its entries; no other mutex is taken under it.
///
/// The first check of a partition makes its entry and asks. Later ones wait in it, until the one that asks takes them all
/// into its next question. The entry is removed when a question is answered and no check waits. Between calls each check is
/// in one place: it waits in an entry, or the one that took it asks.
#[derive(Default)]
pub(super) struct OwnerChecks(Mutex<HashMap<u16, OpenQuestion>>);

/// A partition with a question under way.
struct OpenQuestion {
    since: Instant,
    /// The checks for the next question.
    waiting: Vec<Check>,
}

struct Check {
    live: Arc<LiveHold>,
    answer: AnswerSender,
}

impl Background {
    /// Asks the store whether it carries the hold. Callers that ask about one partition at the same time share a question. The
    /// caller bounds the wait.
    pub(super) async fn ask_about(&self, live: &Arc<LiveHold>) -> Result<HoldStatus, StoreError> {
        loop {
            // An answer is missing only if the runtime of the question ended: the caller asks again on its own runtime.
            if let Some(answer) = self.share_a_question(live).await {
                return answer;
            }
        }
    }

    /// Shares a question with other callers; `None` if the question was dropped.
    async fn share_a_question(
        &self,
        live: &Arc<LiveHold>,
    ) -> Option<Result<HoldStatus, StoreError>> {
        let Handle { store, checks, .. } = &*self.handle;
        let partition = store.partition_of(&live.hold.key);
        let (answer, mut answered) = oneshot::channel();
        let live = live.clone();
        if !checks.add(partition, Check { live, answer }) {
            return answered.await.ok();
        }
        // The first caller asks, and continues in the background while further checks wait.
        let asking = self.clone().ask_until_none_waits(partition);
        let mut asking = self.non_cancellable(Box::pin(asking));
        tokio::select! {
            biased; // without chance, a simulation replays
            () = &mut asking => answered.await.ok(),
            answer = &mut answered => answer.ok(),
        }
    }

    async fn ask_until_none_waits(self, partition: u16) {
        let Handle { store, checks, .. } = &*self.handle;
        let _asking = QuestionGuard { checks, partition };
        while let Some(checks) = checks.next(partition) {
            let questions = by_hold(checks);
            let undecided = ask_all(store, questions, Instant::now() + CONFIRMATION).await;
            if !undecided.is_empty() {
                // Other checks of the partition do not wait for these.
                self.adopt(Box::pin(ask_again(store.clone(), undecided)));
            }
        }
    }
}

impl OwnerChecks {
    /// Adds a check. Returns whether the caller must ask: no other caller asks, or the one that asks hangs.
    fn add(&self, partition: u16, check: Check) -> bool {
        let now = Instant::now();
        match self.0.lock().entry(partition) {
            Entry::Vacant(vacant) => {
                vacant.insert(OpenQuestion {
                    since: now,
                    waiting: vec![check],
                });
                true
            }
            Entry::Occupied(mut asked) => {
                let asked = asked.get_mut();
                asked.waiting.push(check);
                let hangs = now >= asked.since + ANSWER_TIME;
                if hangs {
                    asked.since = now;
                }
                hangs
            }
        }
    }

    fn next(&self, partition: u16) -> Option<Vec<Check>> {
        let mut all = self.0.lock();
        let asked = all.get_mut(&partition)?;
        asked.since = Instant::now();
        let waiting = mem::take(&mut asked.waiting);
        if waiting.is_empty() {
            all.remove(&partition);
            return None;
        }
        Some(waiting)
    }
}

/// The question about a partition. If it ends early, by a panic, the waiting callers ask again.
struct QuestionGuard<'a> {
    checks: &'a OwnerChecks,
    partition: u16,
}

impl Drop for QuestionGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let asked = self.checks.0.lock().remove(&self.partition);
            // Dropped outside the mutex, because this wakes the waiting callers.
            drop(asked);
        }
    }
}

/// A hold, and all callers that ask about it.
type Question = (Arc<LiveHold>, Vec<AnswerSender>);

/// Asks again about holds that the store left undecided, until it decides or the time for a check is over.
async fn ask_again(store: Arc<dyn DynStore>, mut undecided: Vec<Question>) {
    let over = Instant::now() + CONFIRMATION;
    let mut backoff = Backoff::STORE;
    while !undecided.is_empty() && backoff.pause_before(over).await {
        undecided = ask_all(&store, undecided, over).await;
    }
    for (_, senders) in undecided {
        deliver(senders, Ok(HoldStatus::Unknown));
    }
}

/// Asks the store and delivers its answers. Returns the questions that the store left undecided.
async fn ask_all(
    store: &Arc<dyn DynStore>,
    mut questions: Vec<Question>,
    over: Instant,
) -> Vec<Question> {
    let mut undecided = Vec::new();
    while !questions.is_empty() {
        let batch = questions.drain(..questions.len().min(BATCH));
        let checks = batch.as_slice().iter();
        let checks = checks.map(|(live, _)| Renewal::check(live.hold.clone()));
        let answers = ask(store, checks.collect(), over).await;
        for (index, (live, senders)) in batch.enumerate() {
            match answers.as_ref().map(|statuses| statuses[index]) {
                Ok(HoldStatus::Unknown) => undecided.push((live, senders)),
                answer => deliver(senders, answer.map_err(Clone::clone)),
            }
        }
    }
    undecided
}

fn deliver(senders: Vec<AnswerSender>, answer: Result<HoldStatus, StoreError>) {
    for sender in senders {
        // The caller may have been dropped.
        let _ = sender.send(answer.clone());
    }
}

/// Asks which holds the store carries. The question changes nothing, so it is repeated when it fails.
async fn ask(
    store: &Arc<dyn DynStore>,
    checks: Vec<Renewal>,
    over: Instant,
) -> Result<Vec<HoldStatus>, StoreError> {
    let mut backoff = Backoff::STORE;
    loop {
        let answer = store.clone().renew(checks.clone()).await;
        let repeats = answer.as_ref().is_err_and(|error| !error.is_final());
        if !repeats || !backoff.pause_before(over).await {
            return answer;
        }
    }
}

/// Groups the checks by hold. A hold that is handed over quickly has a check from each of its guards.
///
/// The order is that of the first check of each hold. An order of addresses would differ in each run.
fn by_hold(checks: Vec<Check>) -> Vec<Question> {
    let mut places = HashMap::with_capacity(checks.len());
    let mut holds: Vec<Question> = Vec::new();
    for Check { live, answer } in checks {
        let place = *places.entry(Arc::as_ptr(&live)).or_insert(holds.len());
        match holds.get_mut(place) {
            Some((_, senders)) => senders.push(answer),
            None => holds.push((live, vec![answer])),
        }
    }
    holds
}
