//! The state that the handlers share.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, Semaphore};

use super::Console;
use super::holders::HolderCache;
use super::keys::{KeysPage, KeysQuery};
use super::process::Process;
use super::store::{self, StoreJson, StoreView};
use super::survey::Survey;
use crate::client::LockClient;

/// The largest number of open streams.
const STREAMS: usize = 32;

/// How long a survey is kept: several viewers share one.
const SURVEY_FRESH: Duration = Duration::from_millis(400);

/// How long an audit is kept, because it asks every server.
const STORE_FRESH: Duration = Duration::from_secs(10);

/// The client, the settings, and the latest survey and audit.
///
/// Each mutex protects the latest result. One viewer holds it while it makes a new one, so that the others wait for that
/// result and do not make their own.
pub(super) struct Shared {
    pub(super) locks: LockClient,
    pub(super) process: Process,
    pub(super) may_break: bool,
    pub(super) holders: HolderCache,
    pub(super) streams: Arc<Semaphore>,
    survey: Mutex<Option<Arc<Survey>>>,
    store: Mutex<Option<StoreView>>,
}

impl Shared {
    pub(super) fn new(console: Console) -> Self {
        let Console {
            locks,
            process,
            peers,
            may_break,
        } = console;
        locks.inside().journal().open();
        store::watch();
        Self {
            process: Process::new(process, peers, &locks),
            holders: HolderCache::new(&locks),
            streams: Arc::new(Semaphore::new(STREAMS)),
            survey: Mutex::default(),
            store: Mutex::default(),
            locks,
            may_break,
        }
    }

    /// A page of the keys in use. The survey and the sort may take milliseconds, so they run on a blocking thread.
    pub(super) async fn keys(&self, query: KeysQuery) -> KeysPage {
        let survey = self.survey().await;
        let page = beside(move || survey.page(&query)).await;
        page.complete(&self.holders).await
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

    /// The audit of the store, and the connections.
    pub(super) async fn store(&self) -> StoreJson {
        let mut last = self.store.lock().await;
        if let Some(view) = &*last
            && view.age() < STORE_FRESH
        {
            return view.json();
        }
        let view = StoreView::look(&self.locks).await;
        last.insert(view).json()
    }
}

/// Runs long work on a blocking thread.
async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
