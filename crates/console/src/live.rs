//! The stream that updates the page.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderName, StatusCode};
use axum::response::IntoResponse;
use axum::response::sse::{Event, Sse};
use futures_util::future::OptionFuture;
use futures_util::{Stream, StreamExt, stream};
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::keys::KeysQuery;
use super::problem::Problem;
use super::shared::Shared;
use super::{history, key};
use crate::lock::LockKey;

/// How often the page is updated.
const TICK: Duration = Duration::from_secs(1);

/// The number of ticks between two updates of durations and of the store.
const SELDOM: u64 = 3;

/// How long the stream waits for the store's answer about one key.
const LIMIT: Duration = Duration::from_secs(1);

/// How long it waits for an audit.
const AUDIT_LIMIT: Duration = Duration::from_millis(500);

/// How long a stream lives. A graceful shutdown of the server waits for it.
const LIFE: Duration = Duration::from_secs(30);

/// How long the page waits before it opens the next stream.
const RETRY: Duration = Duration::from_millis(500);

/// nginx collects an answer before it sends it on, unless this header says `no`.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// `api/live`: the events `process`, `keys`, `key`, `events`, `durations`, `contended` and `store`, each with the JSON of the
/// path of its name.
pub(super) async fn live(
    State(shared): State<Arc<Shared>>,
    query: Result<Query<KeysQuery>, QueryRejection>,
) -> Result<impl IntoResponse, Problem> {
    let permit = shared.streams.clone().try_acquire_owned();
    let permit = permit.map_err(|_| {
        let why = "too many streams are open: close other windows of this page";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, why)
    })?;
    let Query(query) = query?;
    let viewer = Viewer {
        query,
        shared,
        ticks: 0,
        last_event: Value::Null,
        over: Instant::now() + LIFE,
        _permit: permit,
    };
    Ok(([(BUFFERING, "no")], Sse::new(viewer.stream())))
}

/// One open stream.
struct Viewer {
    shared: Arc<Shared>,
    query: KeysQuery,
    ticks: u64,
    /// The number of the last event that was sent.
    last_event: Value,
    over: Instant,
    _permit: OwnedSemaphorePermit,
}

impl Viewer {
    fn stream(self) -> impl Stream<Item = Result<Event, Infallible>> {
        let ticks = stream::unfold(self, |mut viewer| async move {
            if !viewer.goes_on().await {
                return None;
            }
            let events = viewer.look().await;
            viewer.ticks += 1;
            Some((stream::iter(events), viewer))
        });
        ticks.flatten().map(Ok)
    }

    /// Waits for the next tick; false if the stream is over.
    async fn goes_on(&self) -> bool {
        if self.ticks > 0 {
            tokio::time::sleep(TICK).await;
        }
        Instant::now() < self.over && !self.shared.locks.is_closed()
    }

    /// Looks at everything that is due. Each question to the store has a limit, and they are asked at the same time: a store
    /// that hangs delays a tick by the longest limit.
    async fn look(&mut self) -> Vec<Event> {
        let shared = &self.shared;
        let mut updates = Vec::new();
        if self.ticks == 0 {
            updates.push(("process", shared.process()));
        }
        // Shown in full.
        let key = self.query.key.as_deref().map(LockKey::new);
        let is_due = self.ticks.is_multiple_of(SELDOM);
        let (keys, key, store) = tokio::join!(
            shared.keys(self.query.clone()),
            OptionFuture::from(key.as_ref().map(|key| key::look(shared, key, LIMIT))),
            OptionFuture::from(is_due.then(|| shared.store(AUDIT_LIMIT))),
        );
        updates.push(("keys", keys));
        updates.extend(key.map(|key| ("key", key)));
        let events = history::events(shared);
        if self.last_event != events["last"] {
            self.last_event = events["last"].clone();
            updates.push(("events", events));
        }
        if let Some(store) = store {
            updates.push(("durations", history::durations(shared)));
            updates.push(("contended", history::contended(shared)));
            updates.push(("store", store));
        }
        let events = updates.into_iter().map(|(name, data)| {
            let event = Event::default().event(name).retry(RETRY);
            event.data(data.to_string())
        });
        events.collect()
    }
}
