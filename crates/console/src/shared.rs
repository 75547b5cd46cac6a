//! The state that the handlers share.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use serde_json::Value;
use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tower_distributed_lock::LockClient;

use crate::history::History;
use crate::holders::Holders;
use crate::keys::{KeysPage, KeysQuery};
use crate::problem::Problem;
use crate::store::{self, StoreView};
use crate::survey::Survey;
use crate::throttle::OncePerMinute;
use crate::{Console, millis, process};

/// The largest number of open streams.
const STREAMS: usize = 32;

/// How long a survey is kept: several viewers share one.
const SURVEY_FRESH: Duration = Duration::from_millis(400);

/// How long a request waits for its turn to look at the keys.
const SURVEY_WAIT: Duration = Duration::from_secs(5);

/// How long an audit is kept, because it asks every server.
const STORE_FRESH: Duration = Duration::from_secs(10);

/// The client, the settings, and the latest survey and audit.
///
/// `surveys` has one permit: with many keys in use, a look at them is milliseconds of work, and any number of viewers must leave the
/// other processors to the program. `survey` protects the latest survey. One viewer holds `auditing` while it makes a new audit, so
/// that the others wait for that result and do not make their own. `audited` protects the latest audit, and is never held while
/// the store is asked: the latest audit can be read while the store hangs.
pub(crate) struct Shared {
    pub(crate) locks: LockClient,
    process: Value,
    began: Instant,
    pub(crate) may_break: bool,
    pub(crate) hosts: Vec<String>,
    pub(crate) holders: Holders,
    pub(crate) history: Arc<History>,
    pub(crate) streams: Arc<Semaphore>,
    pub(crate) refused_breaks: OncePerMinute,
    surveys: Arc<Semaphore>,
    survey: Mutex<Option<Arc<Survey>>>,
    auditing: AsyncMutex<()>,
    audited: Mutex<Option<StoreView>>,
}

impl Shared {
    pub(crate) fn new(console: Console) -> Self {
        let locks = console.locks.clone();
        let history = History::of(&locks);
        history.listen();
        Self {
            process: process::json(&console),
            may_break: console.may_break,
            hosts: console.hosts,
            began: Instant::now(),
            holders: Holders::new(&locks),
            history,
            streams: Arc::new(Semaphore::new(STREAMS)),
            refused_breaks: OncePerMinute::default(),
            surveys: Arc::new(Semaphore::new(1)),
            survey: Mutex::default(),
            auditing: AsyncMutex::default(),
            audited: Mutex::default(),
            locks,
        }
    }

    /// `api/process`.
    pub(crate) fn process(&self) -> Value {
        let mut process = self.process.clone();
        process["noted_ms"] = millis::to_ms(self.began.elapsed()).into();
        process
    }

    /// A page of the keys in use.
    pub(crate) async fn keys(self: &Arc<Self>, query: KeysQuery) -> Result<Value, Problem> {
        let turn = timeout(SURVEY_WAIT, self.surveys.clone().acquire_owned()).await;
        let Ok(Ok(turn)) = turn else {
            let why = "too many viewers look at the keys";
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, why));
        };
        let shared = self.clone();
        let page = on_blocking_thread(move || {
            // The work goes on if its viewer leaves, and keeps its turn.
            let _turn = turn;
            shared.page(&query)
        });
        Ok(page.await.json(&self.holders).await)
    }

    fn page(&self, query: &KeysQuery) -> KeysPage {
        let mut latest = self.survey.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = latest.take().filter(|survey| survey.age() < SURVEY_FRESH);
        let survey = fresh.unwrap_or_else(|| Arc::new(Survey::take(&self.locks)));
        *latest = Some(survey.clone());
        drop(latest);
        survey.page(query)
    }

    /// The audit of the store. Does not wait for longer than `limit`, if the store hangs: then it has the audit before.
    pub(crate) async fn store(self: &Arc<Self>, limit: Duration) -> Value {
        let shared = self.clone();
        // The audit goes on without the caller, for the next look.
        let audit = tokio::spawn(async move { shared.audit().await });
        drop(timeout(limit, audit).await);
        self.latest_audit(store::json)
    }

    /// Audits the store, unless the last audit is fresh.
    async fn audit(&self) {
        let _one = self.auditing.lock().await;
        let last = self.latest_audit(|view| view.map(StoreView::age));
        if last.is_none_or(|age| age >= STORE_FRESH) {
            let view = StoreView::look(&self.locks).await;
            *self.audited.lock().unwrap_or_else(PoisonError::into_inner) = Some(view);
        }
    }

    fn latest_audit<T>(&self, read: impl FnOnce(Option<&StoreView>) -> T) -> T {
        let audited = self.audited.lock().unwrap_or_else(PoisonError::into_inner);
        read(audited.as_ref())
    }
}

async fn on_blocking_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    join(tokio::task::spawn_blocking(work)).await
}

/// The result of a task. A panic in it goes on here.
pub(crate) async fn join<T>(task: JoinHandle<T>) -> T {
    match task.await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime ends, and drops this future too.
        Err(_) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use tokio::task::yield_now;
    use tower_distributed_lock::MemoryStore;

    use super::*;

    /// A viewer that leaves and comes back must not occupy one more processor each time.
    #[tokio::test(start_paused = true)]
    async fn one_look_at_the_keys_is_under_way_at_a_time_even_if_its_viewer_has_left() {
        let console = Console::new(&LockClient::new(MemoryStore::new()));
        let shared = Arc::new(Shared::new(console));
        let look = || {
            let shared = shared.clone();
            tokio::spawn(async move { shared.keys(KeysQuery::default()).await })
        };
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let (stopped, is_stopped) = mpsc::channel();
        let stop = thread::spawn({
            let shared = shared.clone();
            move || {
                let _survey = shared.survey.lock();
                stopped.send(()).unwrap();
                let _ = may_go_on.recv();
            }
        });
        is_stopped.recv().unwrap();
        let leaves = look();
        while shared.surveys.available_permits() > 0 {
            yield_now().await;
        }
        leaves.abort();
        assert!(leaves.await.unwrap_err().is_cancelled());
        let waits = look();
        yield_now().await;
        tokio::time::advance(SURVEY_WAIT * 2).await;
        // A look of its own would hang, as the first one does.
        for _ in 0..100 {
            yield_now().await;
        }
        assert!(waits.is_finished());
        assert!(waits.await.unwrap().is_err());
        drop(go_on);
        stop.join().unwrap();
        assert!(look().await.unwrap().is_ok());
    }
}
