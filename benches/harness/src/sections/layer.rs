//! The layer around an empty handler, every request with a key of its own.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::put;
use tower::util::MapFutureLayer;
use tower_distributed_lock::{
    Confirm, DistributedLockLayer, LockClient, LockMode, MemoryStore, RedisStore, console,
};

use crate::Bench;
use crate::cores::Apart;
use crate::http::Site;
use crate::report::Target::{AtLeast, AtMost};
use crate::samples::{Rate, Time, median, ratio, spread};
use crate::server::Server;
use crate::wire::{Handle, Recipe};

type Boxed = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    let server = Server::start().await?;
    let redis = LockClient::new(RedisStore::connect(server.url()).await?);
    let memory = LockClient::new(MemoryStore::new());
    let empty = || Router::new().route("/documents/{id}", put(async || {}));
    let recipe = Recipe::learn(&server, LockMode::Write).await?;
    let handle = Handle::connect(&server, &recipe, 64).await?;
    // Clients of their own: a console records the events of its client.
    let watched = |locks: LockClient| {
        let page = Router::new().nest_service("/_locks", console::router(&locks));
        empty().layer(DistributedLockLayer::new(locks)).merge(page)
    };
    let redis_watched = LockClient::new(RedisStore::connect(server.url()).await?);
    let sites = [
        ("no layer", Site::serve(empty()).await?),
        (
            "a box",
            Site::serve(empty().layer(MapFutureLayer::new(|future| -> Boxed { Box::pin(future) })))
                .await?,
        ),
        (
            "memory",
            Site::serve(empty().layer(DistributedLockLayer::new(memory))).await?,
        ),
        (
            "Redis",
            Site::serve(empty().layer(DistributedLockLayer::new(redis.clone()))).await?,
        ),
        (
            "Redis, Confirm::Deadline",
            Site::serve(empty().layer(DistributedLockLayer::new(redis).confirm(Confirm::Deadline)))
                .await?,
        ),
        (
            "the two commands, bare",
            Site::serve(empty().layer(from_fn_with_state(handle, bare))).await?,
        ),
        (
            "memory, a console",
            Site::serve(watched(LockClient::new(MemoryStore::new()))).await?,
        ),
        (
            "Redis, a console",
            Site::serve(watched(redis_watched)).await?,
        ),
    ];
    for connections in [1, 64] {
        let apart = (connections == 1).then(|| Apart::begin(&server)).flatten();
        let (mut rates, mut latencies) =
            (vec![Vec::new(); sites.len()], vec![Vec::new(); sites.len()]);
        for repetition in 0..=bench.repetitions(15) {
            bench.report.progress(&format!(
                "layer, {connections} connections, repetition {repetition}"
            ));
            for (index, (_, site)) in sites.iter().enumerate() {
                let (rate, latency) = site.load(connections, Duration::from_millis(120)).await?;
                // The first repetition is a warm-up.
                if repetition > 0 {
                    rates[index].push(rate);
                    latencies[index].push(latency.median().as_secs_f64());
                }
            }
        }
        let time = |seconds: f64| Time(Duration::from_secs_f64(seconds.max(0.0)));
        for (((name, _), rates_of), latencies) in sites.iter().zip(&rates).zip(&latencies) {
            bench.report.note(&format!(
                "    {connections:>2} connections, {name:<24} {} ({:.2}), median {}",
                Rate(median(rates_of)),
                ratio(rates_of, &rates[0]),
                time(median(latencies))
            ));
        }
        let beside = |a: &[f64], b: &[f64]| format!("{} of {}", Rate(median(a)), Rate(median(b)));
        if connections == 1 {
            let added = |site: usize| -> Vec<f64> {
                let with = latencies[site].iter().zip(&latencies[0]);
                with.map(|(with, without)| with - without).collect()
            };
            let (ours, bare) = (added(3), added(5));
            bench.report.row(
                "layer on Redis, added latency / that of its two commands on a bare handle",
                AtMost(1.05),
                ratio(&ours, &bare),
                format!(
                    "{} against {}; {}, {}",
                    time(median(&ours)),
                    time(median(&bare)),
                    spread(&ours, &bare),
                    Apart::note(apart.as_ref())
                ),
            );
        } else {
            // The two commands are the prototype of the layer.
            let console = "with a console that is not looked at / without";
            for (place, what, target, ours, theirs) in [
                (
                    "on Redis",
                    " / its two commands on a bare handle",
                    0.95,
                    3,
                    5,
                ),
                ("in memory", " / a layer that boxes", 0.9, 2, 1),
                ("in memory", &format!(": {console}"), 0.97, 6, 2),
                ("in Redis", &format!(": {console}"), 0.97, 7, 3),
            ] {
                bench.report.row(
                    &format!("layer {place}, 64 connections{what}"),
                    AtLeast(target),
                    ratio(&rates[ours], &rates[theirs]),
                    beside(&rates[ours], &rates[theirs]),
                );
            }
        }
    }
    Ok(())
}

/// A handler that only sends the layer's commands.
async fn bare(
    State(handle): State<Handle>,
    request: Request,
    next: Next,
) -> Result<Response, StatusCode> {
    let document = request.uri().path().rsplit('/').next();
    let document = document.and_then(|number| number.parse().ok());
    let served = handle.section(document.unwrap_or(0), next.run(request));
    served.await.map_err(|_| StatusCode::BAD_GATEWAY)
}
