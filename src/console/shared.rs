//! What the handlers share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, Semaphore};

use super::Console;
use super::holders::Holders;
use super::keys::{KeysPage, KeysQuery};
use super::process::Process;
use super::store::{self, StoreJson, StoreView};
use super::survey::Survey;
use crate::client::LockClient;

/// How many streams are open at a time.
const STREAMS: usize = 32;

/// How long a look inside is good for: several viewers share one.
const SURVEY_FRESH: Duration = Duration::from_millis(400);

/// How long an audit is good for: it asks every server.
const STORE_FRESH: Duration = Duration::from_secs(10);

/// The client, the settings, and what was looked at a moment ago.
///
/// A mutex is held while one viewer looks, so that the others wait for that look and do not look themselves.
pub(super) struct Shared {
    pub(super) locks: LockClient,
    pub(super) process: Process,
    pub(super) may_break: bool,
    pub(super) holders: Holders,
    pub(super) streams: Arc<Semaphore>,
    survey: Mutex<Option<(Instant, Arc<Survey>)>>,
    store: Mutex<Option<(Instant, StoreView)>>,
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
            holders: Holders::new(&locks),
            streams: Arc::new(Semaphore::new(STREAMS)),
            survey: Mutex::default(),
            store: Mutex::default(),
            locks,
            may_break,
        }
    }

    /// A page of the keys in use. Looking and sorting may take milliseconds: they are done beside the runtime's workers.
    pub(super) async fn keys(&self, query: KeysQuery) -> KeysPage {
        let survey = self.survey().await;
        let page = beside(move || survey.page(&query)).await;
        page.complete(&self.holders).await
    }

    async fn survey(&self) -> Arc<Survey> {
        let mut last = self.survey.lock().await;
        if let Some((at, survey)) = &*last
            && at.elapsed() < SURVEY_FRESH
        {
            return survey.clone();
        }
        let locks = self.locks.clone();
        let survey = Arc::new(beside(move || Survey::take(&locks)).await);
        *last = Some((Instant::now(), survey.clone()));
        survey
    }

    /// What is known of the store.
    pub(super) async fn store(&self) -> StoreJson {
        let mut last = self.store.lock().await;
        if let Some((at, view)) = &*last
            && at.elapsed() < STORE_FRESH
        {
            return view.json();
        }
        let view = StoreView::look(&self.locks).await;
        let json = view.json();
        *last = Some((Instant::now(), view));
        json
    }
}

/// Runs what takes long without keeping a worker.
async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
