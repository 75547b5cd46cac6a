//! What happens to the locks of this process, for those who listen.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::Route;
use crate::error::LockError;
use crate::lock::{LockKey, LockMode};
use crate::sync::caught;

/// How many events are kept for a listener that is slow.
const KEPT: usize = 1024;

/// The longest name of a key in an event, in bytes: a name may contain what a client has sent, and events are kept.
const LONGEST: usize = 256;

/// Something that happened to a lock, or to a request for one. See [`LockClient::events`](crate::LockClient::events).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LockEvent {
    /// When it happened.
    pub at: SystemTime,
    /// The key; of a refused request for several, the first. Of a name with more than 256 bytes, it has the beginning, and the
    /// [digest](super::digest) of the whole.
    pub key: LockKey,
    /// `None` for a refused request that names several modes, and for a lock that was broken.
    pub mode: Option<LockMode>,
    /// The route of the request, or its [`label`](crate::LockRequest::label).
    pub route: Option<&'static str>,
    /// What happened.
    pub kind: LockEventKind,
    /// How many events this listener has missed just before this one, because it was too slow.
    pub missed: u64,
}

/// What happened.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LockEventKind {
    /// A request got a lock that it had to wait for. A lock that was free is no event.
    Granted {
        /// From the request's first poll.
        waited: Duration,
    },
    /// A request did not get its locks.
    Refused {
        /// Why.
        error: LockError,
        /// From the request's first poll.
        waited: Duration,
    },
    /// A lock was lost while it was held.
    Lost {
        /// Why: the `reason` in the log and in the [metrics](crate::telemetry#metrics), such as `not_renewed`.
        reason: &'static str,
    },
    /// A [`LockAdmin`](crate::LockAdmin) of this client has ended the holds on a key, of any holder.
    Broken,
}

/// The events of a client, from the moment at which this was made. Of a listener that is slow, the oldest events are dropped.
#[derive(Debug)]
pub struct LockEvents(broadcast::Receiver<LockEvent>);

impl LockEvents {
    /// Waits for the next event. `None`: the client, and everything that it has granted, is gone.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no event is lost.
    pub async fn next(&mut self) -> Option<LockEvent> {
        let mut missed = 0;
        loop {
            match caught(self.0.recv()).await {
                Ok(event) => return Some(LockEvent { missed, ..event }),
                Err(RecvError::Lagged(more)) => missed += more,
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// Reports the events of one client to its listeners. Costs one load for each event until there is a listener.
#[derive(Debug, Clone, Default)]
pub(crate) struct Events(Arc<OnceLock<broadcast::Sender<LockEvent>>>);

impl Events {
    pub(crate) fn listen(&self) -> LockEvents {
        let events = self.0.get_or_init(|| broadcast::Sender::new(KEPT));
        LockEvents(events.subscribe())
    }

    pub(crate) fn tell(
        &self,
        key: &LockKey,
        mode: Option<LockMode>,
        route: &Route,
        kind: impl FnOnce() -> LockEventKind,
    ) {
        let listened = self.0.get().filter(|events| events.receiver_count() > 0);
        let Some(events) = listened else {
            return;
        };
        let told = events.send(LockEvent {
            at: SystemTime::now(),
            key: bounded(key),
            mode,
            route: route.template(),
            kind: kind(),
            missed: 0,
        });
        // The last listener may just have gone.
        drop(told);
    }
}

fn bounded(key: &LockKey) -> LockKey {
    let name = key.name();
    match name.len() > LONGEST {
        true => {
            let end = (0..=LONGEST).rfind(|end| name.is_char_boundary(*end));
            let begin = &name[..end.unwrap_or_default()];
            LockKey::new(format!("{begin}… ({})", super::digest(key)))
        }
        false => key.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lose(events: &Events, name: String) {
        let (key, route) = (LockKey::new(name), Route::default());
        events.tell(&key, None, &route, || LockEventKind::Lost { reason: "why" });
    }

    #[tokio::test]
    async fn a_slow_listener_loses_the_oldest_events_and_learns_how_many() {
        let events = Events::default();
        lose(&events, "unheard".to_owned());
        let mut listener = events.listen();
        for number in 0..KEPT + 7 {
            lose(&events, number.to_string());
        }
        let first = listener.next().await.unwrap();
        assert_eq!((first.missed, first.key.as_str()), (7, "7"));
        let second = listener.next().await.unwrap();
        assert_eq!((second.missed, second.key.as_str()), (0, "8"));
    }

    #[tokio::test]
    async fn a_long_name_is_kept_in_part_with_its_digest() {
        let events = Events::default();
        let mut listener = events.listen();
        for end in ["a", "b"] {
            lose(&events, "é".repeat(500_000) + end);
        }
        let [a, b] = [listener.next().await, listener.next().await].map(|event| event.unwrap().key);
        assert_ne!(a, b);
        assert!(a.as_str().starts_with('é') && a.as_str().len() < LONGEST + 20);
    }

    #[tokio::test]
    async fn no_event_is_made_without_a_listener_and_the_end_is_reported() {
        let events = Events::default();
        let unheard = || -> LockEventKind { panic!("there is no listener") };
        events.tell(&LockKey::new("k"), None, &Route::default(), unheard);
        let mut listener = events.listen();
        drop(events.listen());
        lose(&events, "k".to_owned());
        drop(events);
        assert!(listener.next().await.is_some());
        assert!(listener.next().await.is_none());
    }
}
