//! One path of this crate, again and again, for a profiler. The section `profile` runs it under callgrind.
//!
//! ```text
//! bench-profile <path> <number>      prints the nanoseconds of one operation
//! ```

use std::time::Instant;

use anyhow::{Context, Result, bail};
use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::routing::put;
use tower::ServiceExt;
use tower::util::MapFutureLayer;
use tower_distributed_lock::{DistributedLockLayer, LockClient, MemoryStore, RedisStore};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    match words[..] {
        ["pair", number] => {
            let client = LockClient::new(MemoryStore::new());
            runtime.block_on(pairs(client, number.parse()?))
        }
        ["redis", number, url] => runtime.block_on(async {
            let client = LockClient::new(RedisStore::connect(url).await?);
            pairs(client, number.parse()?).await
        }),
        ["bare", number] => runtime.block_on(requests(router(), number.parse()?)),
        ["box", number] => {
            let boxed = router().layer(MapFutureLayer::new(|future| -> Boxed { Box::pin(future) }));
            runtime.block_on(requests(boxed, number.parse()?))
        }
        ["layer", number] => {
            let client = LockClient::new(MemoryStore::new());
            let locked = router().layer(DistributedLockLayer::new(client));
            runtime.block_on(requests(locked, number.parse()?))
        }
        _ => bail!("this is run by the benches"),
    }
}

type Boxed = std::pin::Pin<
    Box<dyn Future<Output = Result<axum::response::Response, std::convert::Infallible>> + Send>,
>;

fn router() -> Router {
    Router::new().route("/documents/{id}", put(async || {}))
}

async fn pairs(client: LockClient, number: usize) -> Result<()> {
    let pair = async |index: usize| {
        let key = KEYS[index % KEYS.len()];
        client.lock(key).acquire().await?.release().await
    };
    for index in 0..WARM {
        pair(index).await?;
    }
    let began = Instant::now();
    for index in 0..number {
        pair(index).await?;
    }
    say(began, number);
    Ok(())
}

async fn requests(app: Router, number: usize) -> Result<()> {
    // As `axum::serve` does: otherwise every request would put the layers together anew.
    let app: Router = app.with_state(());
    let one = async |index: usize| {
        let uri = format!("/documents/{}", index % 16);
        let request = Request::put(uri).body(Body::empty()).context("a request")?;
        let response = app.clone().oneshot(request).await?;
        anyhow::ensure!(response.status().is_success(), "{}", response.status());
        Ok(())
    };
    for index in 0..WARM {
        one(index).await?;
    }
    let began = Instant::now();
    for index in 0..number {
        one(index).await?;
    }
    say(began, number);
    Ok(())
}

const WARM: usize = 64;
const KEYS: [&str; 4] = [
    "lock:order:1",
    "lock:order:2",
    "lock:order:3",
    "lock:order:4",
];

fn say(began: Instant, number: usize) {
    println!(
        "{}",
        began.elapsed().as_nanos() as f64 / number.max(1) as f64
    );
}
