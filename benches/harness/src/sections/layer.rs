//! The layer around a handler that does nothing, every request with a key of its own.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::response::Response;
use axum::routing::put;
use tower::util::MapFutureLayer;
use tower_distributed_lock::{Confirm, DistributedLockLayer, LockClient, MemoryStore, RedisStore};

use crate::Bench;
use crate::http::Site;
use crate::report::Target::{AtLeast, AtMost};
use crate::samples::{Rate, Time, median};
use crate::server::Server;
use crate::wire;

/// The part of the requests that the prototype of the layer left at 64 connections.
const PROTOTYPE: f64 = 0.32;

type Boxed = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    let server = Server::start().await?;
    let redis = LockClient::new(RedisStore::connect(server.url()).await?);
    let memory = LockClient::new(MemoryStore::new());
    let empty = || Router::new().route("/documents/{id}", put(async || {}));
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
    ];
    for connections in [1, 64] {
        let (mut rates, mut latencies) =
            (vec![Vec::new(); sites.len()], vec![Vec::new(); sites.len()]);
        let mut bare = Vec::new();
        for repetition in 0..=bench.repetitions(9) {
            bench.report.progress(&format!(
                "layer, {connections} connections, repetition {repetition}"
            ));
            bare.push(wire::pings(&server, 500).await?.median().as_secs_f64());
            for (index, (_, site)) in sites.iter().enumerate() {
                let (rate, latency) = site.load(connections, Duration::from_millis(250)).await?;
                // The first is for warming up.
                if repetition > 0 {
                    rates[index].push(rate);
                    latencies[index].push(latency.median().as_secs_f64());
                }
            }
        }
        let rates: Vec<_> = rates.iter().map(|rates| median(rates)).collect();
        let latencies: Vec<_> = latencies
            .iter()
            .map(|latencies| median(latencies))
            .collect();
        let time = |seconds: f64| Time(Duration::from_secs_f64(seconds.max(0.0)));
        for (((name, _), rate), latency) in sites.iter().zip(&rates).zip(&latencies) {
            bench.report.note(&format!(
                "    {connections:>2} connections, {name:<24} {} ({:.2}), median {}",
                Rate(*rate),
                rate / rates[0],
                time(*latency)
            ));
        }
        if connections == 1 {
            let (added, bare) = (latencies[3] - latencies[0], median(&bare));
            let beside = format!("{}; a round trip {}", time(added), time(bare));
            bench.report.row(
                "layer on Redis, added latency / two bare round trips",
                AtMost(1.1),
                added / bare / 2.0,
                beside,
            );
        } else {
            let ratio = rates[3] / rates[0];
            let beside = format!(
                "{} of {}, that is {ratio:.2} of no layer",
                Rate(rates[3]),
                Rate(rates[0])
            );
            bench.report.row(
                "layer on Redis, 64 connections / the prototype's part",
                AtLeast(0.95),
                ratio / PROTOTYPE,
                beside,
            );
            let beside = format!("{} of {}", Rate(rates[2]), Rate(rates[1]));
            bench.report.row(
                "layer in memory, 64 connections / a layer that boxes",
                AtLeast(0.95),
                rates[2] / rates[1],
                beside,
            );
        }
    }
    Ok(())
}
