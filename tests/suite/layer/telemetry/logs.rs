//! Logs distinguish locks, and do not contain their names.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::routing::any;
use http_body_util::BodyExt;
use tower::{Layer, ServiceExt};
use tower_distributed_lock::{
    DistributedLockLayer, Lease, LockClient, LockError, LockHandle, LockMode, MemoryStore,
    OnUnavailable, ReleaseOn, key,
};
use tracing::Level;

use super::super::locking;
use super::everything;
use crate::support::{Console, Log, Peer};

const THREE: Duration = Duration::from_secs(3);

impl Log {
    /// The last line on the loss of a lock.
    fn last(&self) -> String {
        let text = self.text();
        let mut lines = text.lines().filter(|line| line.contains("was lost"));
        lines.next_back().unwrap_or_default().to_owned()
    }

    /// The one line that contains `what`.
    fn line(&self, what: &str) -> String {
        let text = self.text();
        let lines: Vec<_> = text.lines().filter(|line| line.contains(what)).collect();
        assert_eq!(lines.len(), 1, "{what} in {text}");
        lines[0].to_owned()
    }
}

#[tokio::test(start_paused = true)]
async fn neither_names_nor_holds_stand_in_logs_above_debug() {
    let (log, _guard) = Log::at(Level::INFO);
    let (_store, locks) = everything().await;
    let text = log.text();
    assert_eq!(text.matches("a lock was lost").count(), 3, "{text}");
    for secret in ["secret", "robbed", &locks.id().to_string()] {
        assert!(!text.contains(secret), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn names_do_not_stand_in_logs_at_debug_either() {
    let (log, _guard) = Log::at(Level::DEBUG);
    let (_store, locks) = everything().await;
    let text = log.text();
    assert!(text.contains(&locks.id().to_string()));
    assert!(
        !text.contains("secret") && !text.contains("robbed"),
        "{text}"
    );
    for outcome in [
        "granted",
        "contended",
        "overloaded",
        "unavailable",
        "cancelled",
        "confirmed",
        "lost",
        "dropped",
    ] {
        assert!(
            text.contains(&format!("outcome=\"{outcome}\"")),
            "{outcome} in {text}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_identified_by_its_digest() {
    let (log, _guard) = Log::at(Level::DEBUG);
    let locks = LockClient::new(MemoryStore::new());
    let guard = locks.lock("secret").await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    guard.release().await.unwrap();

    // `printf secret | sha256sum`
    let span = |name: &str, rest: &str| {
        format!("{name}{{key=2bb80d53 mode=\"reentrant\" otel.kind=\"internal\" {rest}}}")
    };
    let granted = log.line(": granted");
    let waited = span("lock_wait", "outcome=\"granted\" waited_ms=0");
    assert!(granted.contains(&waited), "{granted}");
    let released = log.line(": released");
    let held = span("lock_hold", "outcome=\"confirmed\" held_ms=1000");
    assert!(released.contains(&held), "{released}");
    assert!(released.contains(&format!("hold={}:1", locks.id())));
}

#[tokio::test(start_paused = true)]
async fn names_stand_in_logs_at_trace() {
    let (log, _guard) = Log::at(Level::TRACE);
    let locks = LockClient::new(MemoryStore::new());
    drop(locks.lock("secret").await.unwrap());
    assert!(log.line(": waiting").contains("keys=[\"secret\"]"));
}

#[tokio::test(start_paused = true)]
async fn a_handler_logs_inside_the_span_of_its_lock() {
    let (log, _guard) = Log::at(Level::DEBUG);
    let (_store, _locks, layer) = super::locking();
    let handler = async || tracing::info!("in the handler");
    let app = axum::Router::new()
        .route("/orders/{id}", axum::routing::any(handler))
        .layer(layer);
    super::put(&app, super::SECRET).await;
    assert!(log.line("in the handler").contains("lock_hold{key="));
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_logged_when_it_begins_and_when_it_is_over() {
    let (log, _guard) = Log::at(Level::INFO);
    let (store, locks, _layer) = locking();
    let mut guards = Vec::new();
    for n in 0..250 {
        guards.push(locks.lock(format!("k{n}")).await.unwrap());
    }
    store.unplug(true);
    // A due renewal is tried ten times a second, and no hold is lost before 29 s.
    tokio::time::sleep(Duration::from_secs(25)).await;
    log.line("could not renew");
    assert_eq!(log.text().lines().count(), 1, "{}", log.text());

    store.unplug(false);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let over = log.line("renewals are answered again");
    assert!(over.contains("INFO"), "{over}");
    assert_eq!(log.text().lines().count(), 2, "{}", log.text());
    for guard in guards {
        guard.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_is_logged_with_what_it_said() {
    let (log, _guard) = Log::at(Level::INFO);
    let (store, locks, layer) = locking();
    let _held = locks.lock("k").lease(Lease::Renewed(THREE)).await.unwrap();
    store.unplug(true);
    let app = |layer| super::super::orders().layer(layer);
    super::put(&app(layer.clone()), super::SECRET).await;
    let unlocked = layer.on_unavailable(OnUnavailable::Proceed);
    super::put(&app(unlocked), super::SECRET).await;
    tokio::time::sleep(THREE / 2).await;
    for what in ["not served", "without its lock", "could not renew"] {
        let line = log.line(what);
        assert!(line.contains("unplugged"), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_whose_end_is_withheld_is_logged_with_its_route() {
    let (log, _guard) = Log::at(Level::INFO);
    let (store, _locks, layer) = locking();
    let app = super::super::orders().layer(layer.release_on(ReleaseOn::BodyEnd));
    for unplugged in [false, true] {
        let response = super::put(&app, super::SECRET).await;
        store.unplug(unplugged);
        let end = response.into_body().collect().await;
        assert_eq!(end.is_err(), unplugged);
    }
    let line = log.line("a request has an unknown outcome");
    let what = ["WARN", "route=\"/orders/{id}\"", "has not confirmed"];
    assert!(what.iter().all(|what| line.contains(what)), "{line}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_is_logged_with_what_ended_it() {
    let (log, _guard) = Log::at(Level::INFO);
    let (store, locks, _layer) = locking();
    let ask = |key: &str| locks.lock(key).lease(Lease::Renewed(THREE));
    for seconds in [1, 8] {
        let longest = Duration::from_secs(seconds);
        ask("hangs").max_hold(longest).await.unwrap().lost().await;
        let why = "reason=\"max_hold\"";
        assert!(log.last().contains(why), "{}", log.text());
    }
    let fixed = locks.lock("fixed").lease(Lease::Fixed(THREE));
    fixed.await.unwrap().lost().await;
    let why = "reason=\"lease_over\"";
    assert!(log.last().contains(why), "{}", log.text());
    let alone = ask("alone").max_hold(10 * THREE).await.unwrap();
    store.unplug(true);
    alone.lost().await;
    let why = "reason=\"not_renewed\"";
    assert!(log.last().contains(why), "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_broken_is_logged_with_the_route_of_its_request() {
    let (log, _guard) = Log::at(Level::INFO);
    let (store, _locks, layer) = locking();
    let hanging = async move || {
        store.steal().await;
        std::future::pending::<()>().await;
    };
    let app = Router::new().route("/orders/{id}", any(hanging));
    let app = app.layer(layer.lease(Lease::Renewed(THREE)));
    assert_eq!(super::put(&app, super::SECRET).await.status(), 500);
    let line = log.line("a lock was lost");
    let what = ["WARN", "route=\"/orders/{id}\"", "reason=\"gone\""];
    assert!(what.iter().all(|what| line.contains(what)), "{line}");
}

/// The role: sends many requests to a handler that expects a lock and has no layer, and to one that asks for a lock in a wrong
/// way, and reports the number of logged lines.
pub(crate) async fn unlayered(mut console: Console) {
    async fn in_another_family() -> Result<(), LockError> {
        let locks = LockClient::new(MemoryStore::new());
        let job = locks.lock("secret").await?;
        locks.lock("secret").mode(LockMode::Write).await.map(drop)?;
        job.release().await
    }
    let (log, _guard) = Log::at(Level::INFO);
    let app: Router = Router::new()
        .route("/", any(async |lock: LockHandle| drop(lock)))
        .route("/family", any(in_another_family));
    for path in ["/", "/family"] {
        for _ in 0..100 {
            let request = Request::get(path).body(Body::empty()).unwrap();
            let response = app.clone().oneshot(request).await.unwrap();
            assert_eq!(response.status(), 500);
        }
    }
    console.say(log.text().lines().count());
    log.line("no lock is held around this request");
    assert!(log.line("one family of modes").contains("ERROR"));
    assert!(!log.text().contains("secret"));
    console.say("one names the mistake");
    console.hear().await;
}

/// In a process of its own, because other tests of this process may have logged the one line of the minute.
#[tokio::test]
async fn handlers_without_a_layer_do_not_fill_the_log() {
    let mut peer = Peer::start("unlayered");
    assert_eq!(peer.hear().await, "2");
    assert_eq!(peer.hear().await, "one names the mistake");
}

#[tokio::test(start_paused = true)]
async fn a_frequent_mistake_hides_no_other() {
    let (log, _guard) = Log::at(Level::ERROR);
    let (store, _locks, layer) = locking();
    let elsewhere = LockClient::new(store);
    let _job = elsewhere.lock("order:1").await.unwrap();
    let app = super::super::orders()
        .route("/health", any(async || ()))
        .layer(layer.key(key::param("order", "id")));
    for path in ["/health", "/health", "/orders/1", "/orders/1", "/health"] {
        assert_eq!(super::put(&app, path).await.status(), 500, "{path}");
    }
    assert_eq!(log.text().lines().count(), 2, "{}", log.text());
    assert!(log.line("one family of modes").contains("{id}"));
    log.line("route=\"/health\"");
}

/// Each `POST /orders` waits for the one before, which the log says at the first write of each such route.
#[tokio::test(start_paused = true)]
async fn a_route_without_parameters_is_named_once_unless_its_key_is_chosen() {
    const WARNING: &str = "a route without parameters is one lock";
    let (log, _guard) = Log::at(Level::WARN);
    let app = |layer: DistributedLockLayer| -> Router {
        let routes = ["/orders", "/payments", "/orders/{id}"];
        let routes = routes.into_iter().fold(Router::new(), |app, route| {
            app.route(route, any(async || ()))
        });
        routes.route_layer(layer)
    };
    let layer = DistributedLockLayer::new(LockClient::new(MemoryStore::new()));
    let ask = async |app: &Router, method: &str, path: &str| {
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Body::empty()).unwrap();
        let answer = app.clone().oneshot(request).await.unwrap();
        assert_eq!(answer.status(), 200);
    };
    let chosen = app(layer.clone().key(key::path()));
    ask(&chosen, "POST", "/orders").await;
    let default = app(layer);
    ask(&default, "GET", "/orders").await;
    ask(&default, "POST", "/orders/1").await;
    assert!(!log.text().contains(WARNING), "{}", log.text());
    for _ in 0..3 {
        ask(&default, "POST", "/orders").await;
        ask(&default, "PUT", "/payments").await;
    }
    let text = log.text();
    let lines: Vec<_> = text.lines().filter(|line| line.contains(WARNING)).collect();
    let [orders, payments] = &lines[..] else {
        panic!("a line for each route: {text}");
    };
    assert!(orders.contains("route=\"/orders\""), "{orders}");
    assert!(payments.contains("route=\"/payments\""), "{payments}");
    // The layer may have tenants, of which the key knows nothing.
    assert!(orders.contains("for each tenant"), "{orders}");
}

/// A layer around a whole router does not see the route.
#[tokio::test]
async fn a_layer_that_locks_paths_without_a_route_says_so_once() {
    const WARNING: &str = "a request that no axum route has matched is locked by its path";
    let (log, _guard) = Log::at(Level::WARN);
    let layer = || DistributedLockLayer::new(LockClient::new(MemoryStore::new()));
    let handler = || any(async || ());
    let routed: Router = Router::new()
        .route("/orders/{id}", handler())
        .route_layer(layer());
    let request = || Request::put("/orders/1").body(Body::empty()).unwrap();
    let fallback = || Router::new().fallback(handler());
    let chosen = layer().key(key::path()).layer(fallback());
    let response = chosen.oneshot(request()).await.unwrap();
    assert_eq!(response.status(), 200);
    for _ in 0..10 {
        let response = routed.clone().oneshot(request()).await.unwrap();
        assert_eq!(response.status(), 200);
    }
    assert!(!log.text().contains(WARNING), "{}", log.text());
    let around = layer().layer(fallback());
    for _ in 0..10 {
        let response = around.clone().oneshot(request()).await.unwrap();
        assert_eq!(response.status(), 200);
    }
    log.line(WARNING);
}
