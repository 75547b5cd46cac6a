//! The layer around an empty handler, every request with a key of its own.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::put;
use tower::ServiceExt;
use tower::util::MapFutureLayer;
use tower_distributed_lock::{
    Confirm, DistributedLockLayer, LockClient, MemoryStore, RedisStore, console,
};

use crate::Bench;
use crate::cores::Apart;
use crate::http::Site;
use crate::meter::{Meter, Spent, each};
use crate::recipe::{KEY, KEYS, Recipe};
use crate::report::Target::{AtLeast, AtMost};
use crate::samples::{Rate, Time, median, ratio, spread};
use crate::server::Server;
use crate::wire::Handle;

type Boxed = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    let server = Server::start().await?;
    let redis = LockClient::new(RedisStore::connect(server.url()).await?);
    let memory = LockClient::new(MemoryStore::new());
    let empty = || Router::new().route("/documents/{id}", put(async || {}));
    let bare_state = Bare::connect(&server, empty()).await?;
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
            Site::serve(empty().layer(from_fn_with_state(bare_state, bare))).await?,
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
        let mut costs = vec![Cost::default(); sites.len()];
        for repetition in 0..=bench.repetitions(15) {
            bench.report.progress(&format!(
                "layer, {connections} connections, repetition {repetition}"
            ));
            for (index, (_, site)) in sites.iter().enumerate() {
                let meter = Meter::begin(&server)?;
                let load = site.load(connections, Duration::from_millis(120)).await?;
                let mut spent = meter.end()?;
                spent.clients = load.clients;
                // The first repetition is a warm-up.
                if repetition > 0 {
                    rates[index].push(load.rate());
                    latencies[index].push(load.latencies.median().as_secs_f64());
                    costs[index].requests += load.latencies.len() as f64;
                    costs[index].spent += spent;
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
            let costs: Vec<_> = sites.iter().map(|(name, _)| *name).zip(costs).collect();
            show(bench, &costs);
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

/// What the requests of one site have cost.
#[derive(Clone)]
struct Cost {
    requests: f64,
    spent: Spent,
}

impl Default for Cost {
    fn default() -> Self {
        Self {
            requests: 0.0,
            spent: Spent::NOTHING,
        }
    }
}

/// The table of costs, and what the layer adds in this process.
fn show(bench: &mut Bench, costs: &[(&str, Cost)]) {
    let mut table = String::from(
        "## Where the time of a request goes\n\n64 connections; processor time and idle time of all cores, of each request. What is \
         missing in the sum is other work of the machine.\n\n\
         | what answers | HTTP server, µs | Redis, µs | HTTP clients, µs | idle, µs | all cores, µs |\n\
         | --- | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for (name, Cost { requests, spent }) in costs {
        let Spent {
            own,
            redis,
            clients,
            idle,
            all,
        } = *spent;
        let times = [own, redis, clients, idle, all].map(|time| each(time, *requests));
        table += &format!("| {name} | {} |\n", times.join(" | "));
    }
    bench.report.note(&table);
    bench.report.append(&table);
    for (what, ours, theirs) in [
        (
            "on Redis, 64 connections: µs of the HTTP server, more than its two commands on a bare handle",
            3,
            5,
        ),
        (
            "in memory, 64 connections: µs of the HTTP server, more than a layer that boxes",
            2,
            1,
        ),
    ] {
        let micros = |site: usize| {
            let (_, Cost { requests, spent }) = &costs[site];
            spent.own.as_secs_f64() * 1e6 / requests
        };
        bench.report.fact(
            &format!("layer {what}"),
            micros(ours) - micros(theirs),
            format!("{:.1} µs against {:.1} µs", micros(ours), micros(theirs)),
        );
    }
}

/// What sends the layer's commands: its keys, as many connections, and an id for each request.
#[derive(Clone)]
struct Bare {
    handles: [Handle; 2],
    requests: Arc<AtomicUsize>,
}

impl Bare {
    async fn connect(server: &Server, empty: Router) -> Result<Self> {
        let client = LockClient::new(RedisStore::connect(server.url()).await?);
        let prefix = client.id().to_string();
        let app = empty.layer(DistributedLockLayer::new(client));
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
