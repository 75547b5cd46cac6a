//! Spans, as OpenTelemetry receives them.

use std::time::Duration;

use opentelemetry::trace::{SpanKind, Status, TracerProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tower_distributed_lock::{Lease, LockClient, LockError, MemoryStore, RedisStore};
use tower_distributed_lock_testing::{Faults, FaultyStore};
use tracing::instrument::WithSubscriber;
use tracing_subscriber::layer::SubscriberExt;

use crate::support::{RedisServer, ask_all_subscribers};

/// Collects the spans of this thread.
struct Traces {
    exporter: InMemorySpanExporter,
    provider: SdkTracerProvider,
    _subscriber: tracing::subscriber::DefaultGuard,
}

impl Traces {
    fn begin() -> Self {
        ask_all_subscribers();
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder()
            .with_simple_exporter(exporter.clone())
            .build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("tests"));
        let subscriber = tracing_subscriber::registry().with(layer);
        Self {
            exporter,
            provider,
            _subscriber: tracing::subscriber::set_default(subscriber),
        }
    }

    /// The spans with this name that have ended.
    fn ended(&self, name: &str) -> Vec<SpanData> {
        self.provider.force_flush().unwrap();
        let spans = self.exporter.get_finished_spans().unwrap();
        spans.into_iter().filter(|span| span.name == name).collect()
    }
}

fn attribute(span: &SpanData, name: &str) -> Option<String> {
    let mut attributes = span.attributes.iter();
    let found = attributes.find(|attribute| attribute.key.as_str() == name)?;
    Some(found.value.to_string())
}

fn has_failed(span: &SpanData) -> bool {
    matches!(span.status, Status::Error { .. })
}

#[tokio::test]
async fn spans_have_the_names_of_opentelemetry() {
    let traces = Traces::begin();
    let server = RedisServer::start().await;
    let locks = LockClient::new(RedisStore::connect(server.url()).await.unwrap());
    let guard = locks.lock("k").await.unwrap();
    let busy = locks.lock("k").wait(Duration::ZERO).await;
    assert!(matches!(busy, Err(LockError::Busy { .. })));
    guard.release().await.unwrap();
    let [granted, refused] = &traces.ended("lock_wait")[..] else {
        panic!("two waits");
    };
    for wait in [granted, refused] {
        assert_eq!(wait.span_kind, SpanKind::Client);
        assert_eq!(attribute(wait, "db.system.name").unwrap(), "redis");
        assert_eq!(attribute(wait, "db.operation.name").unwrap(), "EVALSHA");
        let procedure = attribute(wait, "db.stored_procedure.name").unwrap();
        assert_eq!(procedure, "reentrant");
        assert_eq!(attribute(wait, "server.address").unwrap(), "127.0.0.1");
        let port = attribute(wait, "server.port").unwrap();
        assert_eq!(port, server.port().to_string());
        // A lock that is in use is no failure.
        assert_eq!(
            (attribute(wait, "error.type"), has_failed(wait)),
            (None, false)
        );
        assert_eq!(attribute(wait, "otel.kind"), None, "it is no attribute");
    }
    let [held] = &traces.ended("lock_hold")[..] else {
        panic!("one hold");
    };
    assert_eq!(held.span_kind, SpanKind::Internal);
    assert_eq!(
        (attribute(held, "error.type"), has_failed(held)),
        (None, false)
    );
}

#[tokio::test]
async fn what_failed_is_marked_with_its_type() {
    let traces = Traces::begin();
    let store = FaultyStore::new(MemoryStore::new(), Faults::none(), 0);
    let locks = LockClient::new(store.clone());
    let guard = locks.lock("k").await.unwrap();
    store.flush().await;
    assert!(matches!(guard.release().await, Err(LockError::Lost)));
    store.disconnect();
    let refused = locks.lock("k").wait(Duration::ZERO).await;
    assert!(
        matches!(refused, Err(LockError::Unavailable(_))),
        "{refused:?}"
    );

    let [held] = &traces.ended("lock_hold")[..] else {
        panic!("one hold");
    };
    assert_eq!(attribute(held, "error.type").unwrap(), "lost");
    assert!(has_failed(held), "{:?}", held.status);
    let [granted, refused] = &traces.ended("lock_wait")[..] else {
        panic!("two waits");
    };
    assert!(!has_failed(granted));
    assert_eq!(attribute(refused, "error.type").unwrap(), "unavailable");
    assert!(has_failed(refused), "{:?}", refused.status);
    // The memory of a process is no database.
    assert_eq!(refused.span_kind, SpanKind::Internal);
    for of_a_database in [
        "db.system.name",
        "db.operation.name",
        "db.stored_procedure.name",
    ] {
        assert_eq!(attribute(refused, of_a_database), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_is_dropped_after_its_loss_is_marked_as_lost() {
    let traces = Traces::begin();
    let locks = LockClient::new(MemoryStore::new());
    let short = Lease::Fixed(Duration::from_secs(1));
    for (is_lost, kind) in [(false, None), (true, Some("lost"))] {
        let guard = locks.lock("k").lease(short).await.unwrap();
        if is_lost {
            guard.lost().await;
        }
        drop(guard);
        let ended = traces.ended("lock_hold");
        let held = ended.last().expect("a hold");
        assert_eq!(attribute(held, "error.type").as_deref(), kind);
    }
}

#[tokio::test]
async fn a_wait_is_linked_to_the_trace_of_the_holder() {
    let traces = Traces::begin();
    let server = RedisServer::start().await;
    for locks in [
        LockClient::new(MemoryStore::new()),
        LockClient::new(RedisStore::connect(server.url()).await.unwrap()),
    ] {
        let holder = locks.lock("k").await.unwrap();
        let next = tokio::spawn(locks.lock("k").acquire().with_current_subscriber());
        while locks
            .snapshot_of("k")
            .is_none_or(|key| key.waiters.is_empty())
        {
            tokio::task::yield_now().await;
        }
        // The hold is handed over, and the third waits for the second.
        holder.release().await.unwrap();
        let next = next.await.unwrap().unwrap();
        let third = locks
            .lock_all(["k", "other"])
            .wait(Duration::from_millis(50));
        assert!(matches!(third.await, Err(LockError::Busy { .. })));
        next.release().await.unwrap();

        let holds = traces.ended("lock_hold");
        let [first, second] = &holds[holds.len() - 2..] else {
            panic!("two holds");
        };
        let waits = traces.ended("lock_wait");
        let linked = |wait: &SpanData| -> Vec<_> {
            let links = wait.links.iter();
            let links = links.map(|link| link.span_context.span_id());
            links.collect()
        };
        let id = |hold: &SpanData| hold.span_context.span_id();
        let [free, waited, refused] = &waits[waits.len() - 3..] else {
            panic!("three waits");
        };
        assert_eq!(linked(free), []);
        assert_eq!(linked(waited), [id(first)]);
        assert_eq!(linked(refused), [id(second)]);
    }
}
