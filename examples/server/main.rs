//! The demo server: documents, accounts and webhooks behind distributed locks.
//!
//! ```text
//! $ cargo run --example server &
//! $ curl -s -X PUT 'localhost:3000/documents/42?hold_ms=2000' -d 'first' &
//! $ curl -s 'localhost:3000/documents/42'        # waits for the write, then shows it
//! {"content":"first","id":"42","mode":"write","version":1}
//! {"content":"first","id":"42","mode":"read","version":1}
//! ```
//!
//! | request | locks | answers |
//! |---|---|---|
//! | `GET /documents/{id}` | the document, to read | `{"id", "version", "content", "mode"}`, or 404 |
//! | `PUT /documents/{id}`, `DELETE …` | the document, to write | the same |
//! | `GET /accounts/{id}` | the account, to read | `{"id", "balance", "mode"}`; accounts begin with 1000 |
//! | `POST /transfers` `{"from", "to", "amount"}` | both accounts, to write | `{"from": {"id", "balance"}, "to": {"id", "balance"}, "balances": {<id>: <balance>, …}}`; 400 malformed or one account, 422 insufficient funds |
//! | `POST /webhooks/orders` `{"order"}` | its `webhook-id`, then the order | `{"order", "processed"}`: how often webhooks for the order were processed; 401 unless signed |
//!
//! `?hold_ms=…` makes a handler take time between its read and its write: a minute at most. A handler answers 503 if its data
//! cannot be reached, or has changed between its read and its write (see `store.rs`).
//!
//! `GET /metrics` shows waits, holds and losses by route and mode, for Prometheus, and `/_locks` is a live page of who holds and
//! who waits. They are served on `ADMIN_LISTEN` only, which the public must not reach.
//!
//! | variable | default | |
//! |---|---|---|
//! | `LISTEN` | `127.0.0.1:3000` | where to listen |
//! | `ADMIN_LISTEN` | unset: nowhere | where to serve `/metrics` and `/_locks` |
//! | `ALLOW_FORCE_UNLOCK` | unset: no | `yes`: the page `/_locks` may break locks |
//! | `REDIS_URL` | unset: memory | where locks and data live, so that several servers share them |
//! | `DATA_URL` | `REDIS_URL` | where data lives, if not beside the locks |
//! | `LOCK_LEASE_MS` | `30000` | how long a lock outlives a server that dies: 10 ms to a day |
//! | `LOCK_WAIT_MS` | `10000` | how long a request waits for its lock: a day at most |
//! | `WORK_LIMIT_MS` | `90000` | how long a request may take beside that: 10 ms to a day. Then it is answered with 500 |
//! | `WEBHOOK_SECRET` | unset: webhooks are answered 501 | what webhooks are signed with, at least 24 bytes: `whsec_<base64>`, or text |

use std::env;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tower_distributed_lock::idempotency::key;
use tower_distributed_lock::{
    DistributedLockLayer, IdempotencyLayer, Lease, LockClient, MemoryStore, RedisStore,
};
use tower_distributed_lock_console::Console;
use tower_http::timeout::TimeoutLayer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

mod accounts;
mod documents;
mod hold;
mod metrics;
mod settings;
mod signature;
mod store;
mod webhooks;

use settings::Settings;
use store::Store;

/// How long requests that are under way may take after the signal to stop.
const DRAIN: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let filter = env::var("RUST_LOG").unwrap_or_else(|_| "info".into());
    let filter: Targets = filter.parse().context("RUST_LOG")?;
    tracing_subscriber::registry()
        .with(tracing_subscriber::fmt::layer().with_writer(std::io::stderr))
        .with(filter)
        .init();

    let settings = Settings::from_env()?;
    let metrics = metrics::routes()?;
    let (locks, store, place) = connect(settings.redis, settings.data).await?;

    let (lease, wait) = (Lease::Renewed(settings.lease), settings.wait);
    let lock = DistributedLockLayer::new(locks.clone())
        .lease(lease)
        .wait(wait);
    let once = IdempotencyLayer::webhook(locks.clone(), key::standard_webhooks())
        .lease(lease)
        .wait(wait);
    let mut console = Console::new(&locks);
    if settings.allow_force_unlock {
        console = console.allow_force_unlock();
    }
    let admin = metrics.nest_service("/_locks", console.router());
    let app = Router::new()
        .merge(documents::routes(lock.clone()))
        .merge(accounts::routes(lock.clone()))
        .merge(webhooks::routes(lock, once, settings.secret))
        // Outside the locks: a request that takes too long is dropped, and its locks are released, except a webhook, which runs to its
        // end. It may have done a part of its work, so the answer is not a 503, which some clients repeat by themselves.
        .layer(TimeoutLayer::with_status_code(
            StatusCode::INTERNAL_SERVER_ERROR,
            wait.saturating_mul(2) + settings.work,
        ))
        .route("/healthz", get(|| async { "ok" }))
        .with_state(store);

    let listener = TcpListener::bind(&settings.listen)
        .await
        .with_context(|| format!("LISTEN={}", settings.listen))?;
    // Before the address is printed: a reader of the address may send a signal at once.
    let signals = [
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    ];
    println!(
        "listening on http://{}, locks in {place}",
        listener.local_addr()?
    );
    if let Some(address) = settings.admin_listen {
        serve_admin(&address, admin).await?;
    }
    match locks.audit().await {
        Ok(audit) => println!("{audit}"),
        Err(error) => tracing::warn!(%error, "the store cannot be audited"),
    }
    tokio::spawn(audit_each_minute(locks.clone()));
    serve(listener, app, signals).await?;
    locks.shutdown(Duration::from_secs(5)).await?;
    println!("stopped, every lock released");
    Ok(())
}

/// The warnings of the latest audit are a metric.
async fn audit_each_minute(locks: LockClient) {
    loop {
        tokio::time::sleep(Duration::from_secs(60)).await;
        if let Err(error) = locks.audit().await {
            tracing::warn!(%error, "the store cannot be audited");
        }
    }
}

/// Connects to the store of locks and data.
async fn connect(
    locks: Option<String>,
    data: Option<String>,
) -> anyhow::Result<(LockClient, Store, &'static str)> {
    let Some(url) = locks else {
        let locks = LockClient::new(MemoryStore::new());
        return Ok((locks, Store::in_memory(), "memory"));
    };
    let redis = RedisStore::connect(url.as_str())
        .await
        .context("REDIS_URL")?;
    let store = Store::in_redis(data.as_ref().unwrap_or(&url)).context("DATA_URL")?;
    Ok((LockClient::new(redis), store, "Redis"))
}

/// Serves the pages for operators, on a separate address, until the server ends.
async fn serve_admin(address: &str, routes: Router) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("ADMIN_LISTEN={address}"))?;
    let address = listener.local_addr()?;
    println!("metrics on http://{address}/metrics and locks on http://{address}/_locks");
    // The page logs who breaks a lock.
    let routes = routes.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(axum::serve(listener, routes).into_future());
    Ok(())
}

/// Serves until a signal comes, then finishes what is under way.
async fn serve(listener: TcpListener, app: Router, signals: [Signal; 2]) -> anyhow::Result<()> {
    let (stop, stopped) = tokio::sync::watch::channel(());
    let [mut terminate, mut interrupt] = signals;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
        drop(stop);
    });
    let closed = |mut stopped: tokio::sync::watch::Receiver<()>| async move {
        while stopped.changed().await.is_ok() {}
    };
    tokio::select! {
        served = axum::serve(listener, app).with_graceful_shutdown(closed(stopped.clone())) => served?,
        () = async { closed(stopped).await; tokio::time::sleep(DRAIN).await } => {
            tracing::warn!("some requests did not end in time");
        }
    }
    Ok(())
}
