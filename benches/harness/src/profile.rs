//! One path of this crate, again and again, for a profiler. The section `profile` runs it under callgrind.
//!
//! ```text
//! bench-profile <path> <number>          prints the nanoseconds of one operation
//! bench-profile cold <path> <number>     the same, each with cold caches
//! bench-profile <path> <number> <url>    one with a server
//! ```

use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::routing::put;
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;
use tower::ServiceExt;
use tower::util::MapFutureLayer;
use tower_distributed_lock::{DistributedLockLayer, LockClient, LockMode, MemoryStore, RedisStore};
use tower_distributed_lock_console as console;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    match words[..] {
        ["cold", path, number] => runtime.block_on(Operation::of(path)?.cold(number.parse()?)),
        [path, number] => runtime.block_on(Operation::of(path)?.warm(number.parse()?)),
        ["redis", number, url] => runtime.block_on(async {
            let client = LockClient::new(RedisStore::connect(url).await?);
            let keys: Arc<[String]> = (0..TASKS).map(|task| format!("order:{task}")).collect();
            let pair = move |task: usize| {
                let (client, keys) = (client.clone(), keys.clone());
                async move {
                    let guard = client.lock(keys[task].as_str()).acquire().await?;
                    Ok(guard.release().await?)
                }
            };
            crowd(pair, number.parse()?).await
        }),
        ["handles", number, url] => runtime.block_on(async {
            let handles = [prepared(url).await?, prepared(url).await?];
            let pair = move |task: usize| {
                let (mut handle, command) = handles[task % handles.len()].clone();
                async move {
                    handle.send_packed_command(&command).await?;
                    handle.send_packed_command(&command).await?;
                    Ok(())
                }
            };
            crowd(pair, number.parse()?).await
        }),
        ["reads", number, url] => runtime.block_on(async {
            let client = LockClient::new(RedisStore::connect(url).await?);
            let read = move |_task: usize| {
                let client = client.clone();
                async move {
                    let request = client.lock("read").mode(LockMode::Read);
                    Ok(request.acquire().await?.release().await?)
                }
            };
            crowd(read, number.parse()?).await
        }),
        ["layer-redis", number, url] => runtime.block_on(async {
            let client = LockClient::new(RedisStore::connect(url).await?);
            let app: Router = router()
                .layer(DistributedLockLayer::new(client))
                .with_state(());
            let request = move |task: usize| {
                let app = app.clone();
                async move { one_request(&app, task).await }
            };
            crowd(request, number.parse()?).await
        }),
        _ => bail!("this is run by the benches"),
    }
}

type Boxed = std::pin::Pin<
    Box<dyn Future<Output = Result<axum::response::Response, std::convert::Infallible>> + Send>,
>;

fn router() -> Router {
    Router::new().route("/documents/{id}", put(async || {}))
}

/// One in memory.
enum Operation {
    /// What the loop itself takes.
    Nothing,
    Pair(LockClient),
    Request(Router),
}

impl Operation {
    fn of(path: &str) -> Result<Self> {
        let client = LockClient::new(MemoryStore::new());
        let app = match path {
            "nothing" => return Ok(Self::Nothing),
            "pair" => return Ok(Self::Pair(client)),
            "bare" => router(),
            "box" => router().layer(MapFutureLayer::new(|future| -> Boxed { Box::pin(future) })),
            "layer" => router().layer(DistributedLockLayer::new(client)),
            "console" => {
                let page = Router::new().nest_service("/_locks", console::router(&client));
                let locked = router().layer(DistributedLockLayer::new(client));
                locked.merge(page)
            }
            _ => bail!("this is run by the benches"),
        };
        // As `axum::serve` does: otherwise every request would put the layers together anew.
        Ok(Self::Request(app.with_state(())))
    }

    async fn run(&self, index: usize) -> Result<()> {
        match self {
            Self::Nothing => Ok(()),
            Self::Pair(client) => {
                let key = KEYS[index % KEYS.len()];
                Ok(client.lock(key).acquire().await?.release().await?)
            }
            Self::Request(app) => one_request(app, index % 16).await,
        }
    }

    /// One after the other.
    async fn warm(self, number: usize) -> Result<()> {
        for index in 0..WARM {
            self.run(index).await?;
        }
        let began = Instant::now();
        for index in 0..number {
            self.run(index).await?;
        }
        say(began.elapsed(), number);
        Ok(())
    }

    /// Each with cold caches, as in a server, where the kernel, the HTTP library and other requests take them meanwhile: after
    /// messages through the kernel, and after other memory was read.
    async fn cold(self, number: usize) -> Result<()> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let mut here = TcpStream::connect(listener.local_addr()?)?;
        let (mut there, _) = listener.accept()?;
        let mut message = [0; 100];
        let other = vec![1u8; OTHER_MEMORY];
        let mut spent = Duration::ZERO;
        for index in 0..WARM + number {
            here.write_all(&message)?;
            there.read_exact(&mut message)?;
            there.write_all(&message)?;
            here.read_exact(&mut message)?;
            black_box(other.iter().step_by(64).fold(0u8, |sum, byte| sum ^ byte));
            let began = Instant::now();
            self.run(index).await?;
            if index >= WARM {
                spent += began.elapsed();
            }
        }
        say(spent, number);
        Ok(())
    }
}

/// A connection, and a script that returns at once, with as many words as one of this crate has.
async fn prepared(url: &str) -> Result<(MultiplexedConnection, Arc<redis::Cmd>)> {
    let unlimited = AsyncConnectionConfig::new().set_response_timeout(None);
    let mut handle = redis::Client::open(url)?
        .get_multiplexed_async_connection_with_config(&unlimited)
        .await?;
    let script = redis::Script::new("return 0");
    script.prepare_invoke().load_async(&mut handle).await?;
    let mut command = redis::cmd("EVALSHA");
    command.arg(script.get_hash()).arg(2);
    for word in 0..5 {
        command.arg(format!("tower_lock_busy:{word}"));
    }
    Ok((handle, Arc::new(command)))
}

/// Pairs of 64 tasks at a time, `number` in all.
async fn crowd<P, F>(pair: P, number: usize) -> Result<()>
where
    P: Fn(usize) -> F + Clone + Send + 'static,
    F: Future<Output = Result<()>> + Send + 'static,
{
    let run = async |rounds: usize| {
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let pair = pair.clone();
            tasks.spawn(async move {
                for _ in 0..rounds {
                    pair(task).await?;
                }
                anyhow::Ok(())
            });
        }
        tasks.join_all().await.into_iter().collect::<Result<()>>()
    };
    run(2).await?;
    let began = Instant::now();
    run(number / TASKS).await?;
    say(began.elapsed(), number);
    Ok(())
}

async fn one_request(app: &Router, document: usize) -> Result<()> {
    let uri = format!("/documents/{document}");
    let request = Request::put(uri).body(Body::empty()).context("a request")?;
    let response = app.clone().oneshot(request).await?;
    anyhow::ensure!(response.status().is_success(), "{}", response.status());
    Ok(())
}

const WARM: usize = 64;
/// As much as a core's own cache has.
const OTHER_MEMORY: usize = 1 << 20;
const TASKS: usize = 64;
const KEYS: [&str; 4] = [
    "lock:order:1",
    "lock:order:2",
    "lock:order:3",
    "lock:order:4",
];

fn say(time: Duration, number: usize) {
    println!("{}", time.as_nanos() as f64 / number.max(1) as f64);
}
