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
use futures_util::{StreamExt, stream};
use serde_json::Value;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::{sleep, timeout};

use crate::key;
use crate::keys::KeysQuery;
use crate::problem::Problem;
use crate::shared::Shared;
use tower_distributed_lock::lock::LockKey;

/// How often the page is updated.
const TICK: Duration = Duration::from_secs(1);

/// The number of ticks between two updates of durations and of the store.
const SLOW_TICKS: u64 = 3;

/// How long the stream waits for the store's answer about one key.
const KEY_LIMIT: Duration = Duration::from_secs(1);

/// How long it waits for an audit.
const AUDIT_LIMIT: Duration = Duration::from_millis(500);

/// How long a stream lives, whether or not it is read. A graceful shutdown of the server waits for it.
const LIFE: Duration = Duration::from_secs(30);

/// How long the page waits before it opens the next stream.
const RETRY: Duration = Duration::from_millis(500);

/// nginx collects an answer before it sends it on, unless this header says `no`.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// `api/live`: the events `process`, `keys`, `key`, `events`, `durations`, `contended` and `store`, each with the JSON of the
/// path of its name.
///
/// A task makes the events, and ends with its time, so that a viewer who opens streams and reads nothing keeps no place.
pub(crate) async fn live(
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
    };
    let (sender, events) = mpsc::channel(1);
    tokio::spawn(async move {
        let _permit = permit;
        drop(timeout(LIFE, viewer.watch(sender)).await);
    });
    let events = stream::unfold(events, async |mut events: Receiver<Vec<Event>>| {
        Some((stream::iter(events.recv().await?), events))
    });
    let events = events.flatten().map(Ok::<_, Infallible>);
    Ok(([(BUFFERING, "no")], Sse::new(events)))
}

/// One open stream.
struct Viewer {
    shared: Arc<Shared>,
    query: KeysQuery,
    ticks: u64,
    /// The number of the last event that was sent.
    last_event: Value,
}

impl Viewer {
    /// Sends the events of each tick, until the viewer leaves or the client ends.
    async fn watch(mut self, viewer: Sender<Vec<Event>>) {
        let left = viewer.clone();
        let watching = async {
            while !self.shared.locks.is_shut_down() {
                let events = self.look().await;
                if viewer.send(events).await.is_err() {
                    return;
                }
                self.ticks += 1;
                sleep(TICK).await;
            }
        };
        tokio::select! {
            () = watching => {}
            () = left.closed() => {}
        }
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
        let is_due = self.ticks.is_multiple_of(SLOW_TICKS);
        let (keys, key, store) = tokio::join!(
            shared.keys(self.query.clone()),
            OptionFuture::from(key.as_ref().map(|key| key::look(shared, key, KEY_LIMIT))),
            OptionFuture::from(is_due.then(|| shared.store(AUDIT_LIMIT))),
        );
        updates.extend(keys.ok().map(|keys| ("keys", keys)));
        updates.extend(key.map(|key| ("key", key)));
        let events = shared.history.events();
        if self.last_event != events["last"] {
            self.last_event = events["last"].clone();
            updates.push(("events", events));
        }
        if let Some(store) = store {
            updates.push(("durations", shared.history.durations()));
            updates.push(("contended", shared.history.contended()));
            updates.push(("store", store));
        }
        let events = updates.into_iter().map(|(name, data)| {
            let event = Event::default().event(name).retry(RETRY);
            event.data(data.to_string())
        });
        events.collect()
    }
}
