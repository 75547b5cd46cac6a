//! Documents behind read-write locks: the demo server.
//!
//! ```text
//! cargo run --example server
//! curl -X PUT 'localhost:3000/documents/42?hold_ms=2000' -d 'first' &
//! curl 'localhost:3000/documents/42'        # waits for the write, then shows it
//! ```
//!
//! | variable | default | |
//! |---|---|---|
//! | `LISTEN` | `127.0.0.1:3000` | where to listen |
//! | `REDIS_URL` | unset: memory | where locks and documents live, so that several servers share them |
//! | `LOCK_LEASE_MS` | `30000` | how long a lock outlives a server that dies |
//! | `LOCK_WAIT_MS` | `10000` | how long a request waits for its lock |

use std::env;
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tower_distributed_lock::{
    DistributedLockLayer, Lease, LockClient, LockHandle, MemoryStore, RedisStore,
};
use tracing_subscriber::EnvFilter;

mod documents;

use documents::{Document, Documents};

/// How long requests that are under way may take after the server was told to stop.
const DRAIN: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();

    let lease = Duration::from_millis(setting("LOCK_LEASE_MS", 30_000)?);
    let wait = Duration::from_millis(setting("LOCK_WAIT_MS", 10_000)?);
    let (locks, documents, store) = match env::var("REDIS_URL") {
        Ok(url) => (
            LockClient::new(
                RedisStore::connect(url.as_str())
                    .await
                    .context("REDIS_URL")?,
            ),
            Documents::in_redis(&url)?,
            "Redis",
        ),
        Err(_) => (
            LockClient::new(MemoryStore::new()),
            Documents::in_memory(),
            "memory",
        ),
    };

    let app = Router::new()
        .route("/documents/{id}", get(show).put(replace).delete(remove))
        .layer(
            DistributedLockLayer::new(locks.clone())
                .lease(Lease::Renewed(lease))
                .wait(wait),
        )
        .route("/healthz", get(|| async { "ok" }))
        .with_state(documents);

    let listener = TcpListener::bind(setting("LISTEN", "127.0.0.1:3000".to_owned())?).await?;
    println!(
        "listening on http://{}, locks in {store}",
        listener.local_addr()?
    );
    serve(listener, app).await?;
    locks.shutdown(Duration::from_secs(5)).await?;
    println!("stopped, every lock released");
    Ok(())
}

/// Serves until a signal comes, then finishes what is under way.
async fn serve(listener: TcpListener, app: Router) -> anyhow::Result<()> {
    let (stop, stopped) = tokio::sync::watch::channel(());
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
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

#[derive(Deserialize)]
struct Hold {
    #[serde(default)]
    hold_ms: u64,
}

impl Hold {
    async fn pass(&self) {
        tokio::time::sleep(Duration::from_millis(self.hold_ms)).await;
    }
}

async fn show(
    State(documents): State<Documents>,
    Path(id): Path<String>,
    Query(hold): Query<Hold>,
    lock: LockHandle,
) -> Result<Response, Failure> {
    let document = documents.read(&id).await?;
    hold.pass().await;
    Ok(answer(&id, document, &lock))
}

async fn replace(
    State(documents): State<Documents>,
    Path(id): Path<String>,
    Query(hold): Query<Hold>,
    lock: LockHandle,
    content: String,
) -> Result<Response, Failure> {
    let version = documents
        .read(&id)
        .await?
        .map_or(0, |document| document.version);
    hold.pass().await;
    let document = Document {
        version: version + 1,
        content,
    };
    documents.write(&id, &document).await?;
    Ok(answer(&id, Some(document), &lock))
}

async fn remove(
    State(documents): State<Documents>,
    Path(id): Path<String>,
    Query(hold): Query<Hold>,
    lock: LockHandle,
) -> Result<Response, Failure> {
    let document = documents.read(&id).await?;
    hold.pass().await;
    documents.remove(&id).await?;
    Ok(answer(&id, document, &lock))
}

fn answer(id: &str, document: Option<Document>, lock: &LockHandle) -> Response {
    let mode = lock.mode().as_str();
    match document {
        Some(Document { version, content }) => {
            Json(json!({ "id": id, "version": version, "content": content, "mode": mode }))
                .into_response()
        }
        None => (
            StatusCode::NOT_FOUND,
            Json(json!({ "id": id, "error": "no such document" })),
        )
            .into_response(),
    }
}

/// The documents could not be reached.
struct Failure(anyhow::Error);

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        tracing::error!(error = %self.0, "the documents cannot be reached");
        StatusCode::SERVICE_UNAVAILABLE.into_response()
    }
}

fn setting<T>(name: &str, default: T) -> anyhow::Result<T>
where
    T: FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    match env::var(name) {
        Ok(value) => value.parse().with_context(|| format!("{name}={value}")),
        Err(_) => Ok(default),
    }
}
