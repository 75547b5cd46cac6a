//! The state that the handlers share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::holders::Holders;
use super::keys::KeysQuery;
use super::store::{self, StoreView};
use super::survey::Survey;
use super::{Console, millis, process};
use crate::client::LockClient;
use crate::sync;

/// The largest number of open streams.
const STREAMS: usize = 32;

/// How long a survey is kept: several viewers share one.
const SURVEY_FRESH: Duration = Duration::from_millis(400);

/// How long an audit is kept, because it asks every server.
const STORE_FRESH: Duration = Duration::from_secs(10);

/// The client, the settings, and the latest survey and audit.
///
/// One viewer holds `survey` or `auditing` while it makes a new survey or audit, so that the others wait for that result
/// and do not make their own. `audited` protects the latest audit, and is never held while the store is asked: the latest
/// audit can be read while the store hangs.
pub(super) struct Shared {
    pub(super) locks: LockClient,
    process: Value,
    began: Instant,
    pub(super) may_break: bool,
    pub(super) holders: Holders,
    pub(super) streams: Arc<Semaphore>,
    survey: Mutex<Option<Arc<Survey>>>,
    auditing: Mutex<()>,
    audited: sync::Mutex<Option<StoreView>>,
}

impl Shared {
    pub(super) fn new(console: Console) -> Self {
        let locks = console.locks.clone();
        locks.journal().open();
        store::watch();
        Self {
            process: process::json(&console),
            may_break: console.may_break,
            began: Instant::now(),
            holders: Holders::new(&locks),
            streams: Arc::new(Semaphore::new(STREAMS)),
            survey: Mutex::default(),
            auditing: Mutex::default(),
            audited: sync::Mutex::default(),
            locks,
        }
    }

    /// `api/process`.
    pub(super) fn process(&self) -> Value {
        let mut process = self.process.clone();
        process["noted_ms"] = millis::of(self.began.elapsed()).into();
        process
    }

    /// A page of the keys in use. The survey and the sort may take milliseconds, so they run on a blocking thread.
    pub(super) async fn keys(&self, query: KeysQuery) -> Value {
        let survey = self.survey().await;
        let page = beside(move || survey.page(&query)).await;
        page.json(&self.holders).await
    }

    async fn survey(&self) -> Arc<Survey> {
        let mut last = self.survey.lock().await;
        if let Some(survey) = &*last
            && survey.age() < SURVEY_FRESH
        {
            return survey.clone();
        }
        let locks = self.locks.clone();
        let survey = Arc::new(beside(move || Survey::take(&locks)).await);
        *last = Some(survey.clone());
        survey
    }

    /// The connections, and the audit of the store. Does not wait for longer than `limit`, if the store hangs: then it has the
    /// audit before.
    pub(super) async fn store(self: &Arc<Self>, limit: Duration) -> Value {
        let shared = self.clone();
        // The audit goes on without the caller, for the next look.
        let audit = tokio::spawn(async move { shared.audit().await });
        drop(timeout(limit, audit).await);
        store::json(self.audited.lock().as_ref())
    }

    /// Audits the store, unless the last audit is fresh.
    async fn audit(&self) {
        let _one = self.auditing.lock().await;
        let last = self.audited.lock().as_ref().map(StoreView::age);
        if last.is_none_or(|age| age >= STORE_FRESH) {
            let view = StoreView::look(&self.locks).await;
            *self.audited.lock() = Some(view);
        }
    }
}

/// Runs long work on a blocking thread.
async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    done(tokio::task::spawn_blocking(work)).await
}

/// The result of a task. A panic in it goes on here.
pub(super) async fn done<T>(task: JoinHandle<T>) -> T {
    match task.await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime ends, and drops this future too.
        Err(_) => std::future::pending().await,
    }
}
