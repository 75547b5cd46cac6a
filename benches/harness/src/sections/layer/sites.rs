//! What answers: an empty handler, in several layers.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, ensure};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::put;
use tokio::runtime::Runtime;
use tower::ServiceExt;
use tower::util::MapFutureLayer;
use tower_distributed_lock::{Confirm, DistributedLockLayer, LockClient, MemoryStore, RedisStore};
use tower_distributed_lock_console as console;

use crate::cores::one_thread_runtime;
use crate::http::Site;
use crate::recipe::{KEY, KEYS, Recipe};
use crate::server::Server;
use crate::wire::Handle;

type Boxed = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

pub(super) const NO_LAYER: &str = "no layer";
pub(super) const BOX: &str = "a box";
pub(super) const MEMORY: &str = "memory";
pub(super) const REDIS: &str = "Redis";
pub(super) const DEADLINE: &str = "Redis, Confirm::Deadline";
pub(super) const COMMANDS: &str = "the two commands, bare";
pub(super) const MEMORY_CONSOLE: &str = "memory, a console";
pub(super) const REDIS_CONSOLE: &str = "Redis, a console";

/// Serves `name` in the runtime of the caller.
pub(super) async fn serve(name: &str, server: &Server) -> Result<Site> {
    let memory = || LockClient::new(MemoryStore::new());
    let locked = |locks: LockClient| empty().layer(DistributedLockLayer::new(locks));
    let router = match name {
        NO_LAYER => empty(),
        BOX => empty().layer(MapFutureLayer::new(|future| -> Boxed { Box::pin(future) })),
        MEMORY => locked(memory()),
        REDIS => locked(redis(server).await?),
        DEADLINE => empty()
            .layer(DistributedLockLayer::new(redis(server).await?).confirm(Confirm::Deadline)),
        COMMANDS => empty().layer(from_fn_with_state(Bare::connect(server).await?, bare)),
        MEMORY_CONSOLE => watched(memory()),
        REDIS_CONSOLE => watched(redis(server).await?),
        _ => anyhow::bail!("no such site: {name}"),
    };
    Site::serve(router).await
}

/// A runtime with one thread. It ends when this is dropped.
pub(super) struct OneThread(Option<Runtime>);

impl OneThread {
    pub(super) fn start() -> Result<Self> {
        Ok(Self(Some(one_thread_runtime()?)))
    }

    pub(super) async fn serve(&self, name: &'static str, server: &Arc<Server>) -> Result<Site> {
        let server = server.clone();
        let runtime = self.0.as_ref().expect("it ends with this value");
        let (runtime, server) = (runtime.handle().clone(), server.clone());
        let serving = move || runtime.block_on(serve(name, &server));
        tokio::task::spawn_blocking(serving).await?
    }
}

impl Drop for OneThread {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Another runtime must not wait for its end.
            runtime.shutdown_background();
        }
    }
}

async fn redis(server: &Server) -> Result<LockClient> {
    Ok(LockClient::new(RedisStore::connect(server.url()).await?))
}

fn empty() -> Router {
    Router::new().route("/documents/{id}", put(async || {}))
}

fn watched(locks: LockClient) -> Router {
    let page = Router::new().nest_service("/_locks", console::router(&locks));
    empty().layer(DistributedLockLayer::new(locks)).merge(page)
}

/// What sends the layer's commands: its keys, as many connections, and an id for each request.
#[derive(Clone)]
struct Bare {
    handles: [Handle; 2],
    requests: Arc<AtomicUsize>,
}

impl Bare {
    async fn connect(server: &Server) -> Result<Self> {
        let client = LockClient::new(RedisStore::connect(server.url()).await?);
        let prefix = client.id().to_string();
        let app = empty().layer(DistributedLockLayer::new(client));
        let request = async || {
            let request = Request::put(format!("/documents/{KEY}")).body(Body::empty())?;
            let response = app.clone().oneshot(request).await?;
            ensure!(response.status().is_success(), "{}", response.status());
            Ok(())
        };
        let commands = Recipe::record(server, request).await?;
        // The name of a document is its number.
        let recipe = Recipe::of(commands, "", |word| word.starts_with(&prefix))?;
        let connect = || Handle::connect(server, &recipe, KEYS * 64);
        Ok(Self {
            handles: [connect().await?, connect().await?],
            requests: Arc::default(),
        })
    }
}

/// A handler that only sends the layer's commands.
async fn bare(
    State(Bare { handles, requests }): State<Bare>,
    request: Request,
    next: Next,
) -> Result<Response, StatusCode> {
    let document = request.uri().path().rsplit('/').next();
    let document: usize = document.and_then(|number| number.parse().ok()).unwrap_or(0);
    let number = KEYS * requests.fetch_add(1, Ordering::Relaxed) + document;
    let served = handles[document % handles.len()].section(number, next.run(request));
    served.await.map_err(|_| StatusCode::BAD_GATEWAY)
}
