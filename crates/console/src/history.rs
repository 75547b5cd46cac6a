//! What has happened since the console exists: events, waits and contended keys. The guide has the fields of the JSON.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::time::Instant;
use tower_distributed_lock::client::{LockEvent, LockEventKind, LockEvents};
use tower_distributed_lock::{LockClient, LockError, LockKey};

use crate::contended::{ContendedKeys, WINDOW};
use crate::durations::{BOUNDS, Durations, Histogram};
use crate::recent::{Noted, Recent};
use crate::{millis, problem};

/// How many contended keys are shown.
const HOTTEST: usize = 20;

/// What the events of a client add up to, in bounded memory.
#[derive(Debug)]
pub(crate) struct History {
    past: Mutex<Past>,
    /// Until a task reads them.
    unread: Mutex<Option<LockEvents>>,
    /// The breaks under way: the names of the keys, and the callers. After events that were missed, a caller may be unknown.
    callers: Mutex<Vec<(String, String)>>,
}

#[derive(Debug)]
struct Past {
    recent: Recent,
    durations: Durations,
    contended: ContendedKeys,
    missed: u64,
}

impl History {
    pub(crate) fn of(locks: &LockClient) -> Arc<Self> {
        Arc::new(Self {
            past: Mutex::new(Past {
                recent: Recent::default(),
                durations: Durations::default(),
                contended: ContendedKeys::new(Instant::now()),
                missed: 0,
            }),
            unread: Mutex::new(Some(locks.events())),
            callers: Mutex::default(),
        })
    }

    /// Begins to read the events, once, if there is a runtime for the task.
    pub(crate) fn listen(self: &Arc<Self>) {
        if let Ok(runtime) = Handle::try_current()
            && let Some(events) = lock(&self.unread).take()
        {
            runtime.spawn(read(events, Arc::downgrade(self)));
        }
    }

    /// The next break of this key is by this caller.
    pub(crate) fn expect_break(&self, name: &str, caller: String) {
        lock(&self.callers).push((name.to_owned(), caller));
    }

    /// The key was free.
    pub(crate) fn no_break(&self, name: &str) {
        self.take_caller(|broken| broken == name);
    }

    fn add(&self, event: LockEvent) {
        if event.missed > 0 {
            // A break may be among those that were missed: its caller would be named for the next break of its key.
            lock(&self.callers).clear();
        }
        let caller = match event.kind {
            LockEventKind::Broken => self.take_caller(|name| is_named(&event.key, name)),
            _ => None,
        };
        lock(&self.past).add(event, caller);
    }

    fn take_caller(&self, is_it: impl Fn(&str) -> bool) -> Option<String> {
        let mut callers = lock(&self.callers);
        let place = callers.iter().position(|(name, _)| is_it(name))?;
        Some(callers.remove(place).1)
    }

    /// `api/events`.
    pub(crate) fn events(&self) -> Value {
        let past = lock(&self.past);
        let recent = &past.recent;
        let latest = recent.latest().into_iter();
        json!({
            "lost": recent.lost,
            "refused": recent.refused,
            "broken": recent.broken,
            "missed": past.missed,
            "last": recent.last,
            "events": latest.map(shown).collect::<Vec<_>>(),
        })
    }

    /// `api/durations`.
    pub(crate) fn durations(&self) -> Value {
        let past = lock(&self.past);
        let series = past.durations.all().into_iter();
        let series = series.map(|((route, mode), waits)| {
            json!({ "route": &**route, "mode": mode, "waits": histogram(waits) })
        });
        // One more bucket has longer durations than the last bound.
        json!({ "bounds_ms": BOUNDS, "series": series.collect::<Vec<_>>() })
    }

    /// `api/contended`.
    pub(crate) fn contended(&self) -> Value {
        let contended = lock(&self.past).contended.all(Instant::now());
        let hottest = contended.into_iter().take(HOTTEST);
        let keys = hottest.map(|(key, waits)| {
            json!({ "key": key, "waits": waits.count, "waited_ms": millis::to_ms(waits.sum) })
        });
        // The longest time that the counts cover.
        let window = 2 * millis::to_ms(WINDOW);
        json!({ "window_ms": window, "keys": keys.collect::<Vec<_>>() })
    }
}

impl Past {
    fn add(&mut self, event: LockEvent, caller: Option<String>) {
        self.missed += event.missed;
        let waited = match event.kind {
            LockEventKind::Granted { waited } | LockEventKind::Refused { waited, .. } => waited,
            _ => return self.recent.add(event, caller),
        };
        // A request that does not wait is refused at once.
        if waited >= Duration::from_millis(1) {
            self.contended.add(&event.key, waited, Instant::now());
        }
        let route = event.route.unwrap_or("none");
        let mode = event.mode.map_or("mixed", |mode| mode.as_str());
        self.durations.record((route, mode), waited);
        self.recent.add(event, None);
    }
}

/// Whether the key of an event is that of this name. Of a long name it has the beginning, and a digest.
fn is_named(key: &LockKey, name: &str) -> bool {
    let shortened = key.name().rsplit_once("… (");
    key.name() == name || shortened.is_some_and(|(begin, _)| name.starts_with(begin))
}

/// Reads until the client is gone, or the console.
async fn read(mut events: LockEvents, history: Weak<History>) {
    while let Some(event) = events.next().await {
        let Some(history) = history.upgrade() else {
            return;
        };
        history.add(event);
    }
}

/// A panic under these mutexes leaves nothing that is worse than a count that misses an event.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn shown(
    Noted {
        number,
        event,
        caller,
    }: &Noted,
) -> Value {
    let (kind, refusal, cause) = match &event.kind {
        LockEventKind::Lost { reason } => ("lost", None, (*reason).to_owned()),
        LockEventKind::Refused { error, waited } => {
            let refusal = (outcome(error), millis::to_ms(*waited));
            ("refused", Some(refusal), problem::text(error))
        }
        _ => {
            let by = caller.as_deref().unwrap_or("this process");
            ("broken", None, format!("broken from {by}"))
        }
    };
    let (outcome, waited) = refusal.unzip();
    let mode = event.mode.map(|mode| mode.as_str());
    json!({
        "number": number,
        "at_ms": millis::unix_ms(event.at),
        "kind": kind,
        "outcome": outcome,
        "key": event.key,
        "mode": mode.or(outcome.map(|_| "mixed")),
        "route": event.route.unwrap_or("none"),
        "cause": cause,
        "waited_ms": waited,
    })
}

/// The short name of a refusal, as the spans of waits have it.
fn outcome(error: &LockError) -> &'static str {
    match error {
        LockError::Busy { .. } => "contended",
        LockError::Overloaded => "overloaded",
        LockError::Unavailable(_) => "unavailable",
        LockError::Conflict(_) => "conflict",
        LockError::Lost => "lost",
        LockError::Shutdown => "shutdown",
        _ => "misused",
    }
}

fn histogram(histogram: &Histogram) -> Value {
    let count = histogram.count();
    let mean = histogram.sum.as_secs_f64() * 1000.0 / count.max(1) as f64;
    json!({
        "count": count,
        // Whole microseconds.
        "mean_ms": (mean * 1000.0).round() / 1000.0,
        "p50_ms": histogram.quantile(50),
        "p95_ms": histogram.quantile(95),
        "p99_ms": histogram.quantile(99),
        "buckets": histogram.buckets,
    })
}

#[cfg(test)]
mod tests {
    use tower_distributed_lock::MemoryStore;

    use super::*;

    #[tokio::test]
    async fn a_caller_whose_break_was_missed_is_not_named_for_the_next() {
        let locks = LockClient::new(MemoryStore::new());
        let history = History::of(&locks);
        let admin = locks.admin().unwrap();
        let guard = locks.lock("k").await.unwrap();
        history.expect_break("k", "10.0.0.1".to_owned());
        assert!(admin.force_unlock("k").await.unwrap());
        guard.release().await.unwrap_err();

        // More events than the client keeps for a listener that does not read.
        let busy = locks.lock("busy").await.unwrap();
        for _ in 0..2_000 {
            locks.lock("busy").wait(Duration::ZERO).await.unwrap_err();
        }
        let guard = locks.lock("k").await.unwrap();
        assert!(admin.force_unlock("k").await.unwrap());
        history.listen();
        while history.events()["broken"] != 1 {
            tokio::task::yield_now().await;
        }
        guard.release().await.unwrap_err();
        busy.release().await.unwrap();
        let events = history.events();
        assert_ne!(events["missed"], 0);
        let events = events["events"].as_array().unwrap();
        let mut broken = events.iter().filter(|event| event["kind"] == "broken");
        assert_eq!(broken.next().unwrap()["cause"], "broken from this process");
    }
}
