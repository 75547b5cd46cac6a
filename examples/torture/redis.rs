//! Torture of processes that share Redis servers.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::Result;
use fastrand::Rng;
use tokio::time::sleep;

use crate::blow::{Arm, Blow, Scores, outlives_locks};
use crate::crew::Crew;
use crate::habits::Habits;
use crate::history::History;
use crate::options::{Options, Store};
use crate::report::Report;
use crate::support::{RedisServer, eventually};

/// The time after which the holds of killed workers must have expired.
const LAPSED: Duration = Duration::from_secs(60);

/// Runs, and reports.
pub(crate) async fn torture(options: &Options) -> Result<Report> {
    let mut servers = Vec::new();
    for _ in 0..options.store.servers() {
        servers.push(RedisServer::start().await);
    }
    let habits = Habits {
        keys: options.keys,
        tasks: options.tasks,
        lease_ms: options.lease_ms,
        gullible: options.gullible,
        ordered: options.store != Store::Quorum,
        permits: options.store != Store::Quorum,
    };
    let mut history = History::default();
    let mut crew = Crew::start(options, habits, &servers).await?;
    let began = Instant::now();
    let scores = blow_after_blow(options, &mut servers, &mut crew, &mut history).await?;
    crew.dismiss(&mut history).await?;
    let time = began.elapsed();
    for server in &servers {
        let left = eventually("nothing is left", LAPSED, async || left_in(server).await);
        left.await;
    }
    Ok(Report::new(options, time, scores, history))
}

/// Injects faults until the time is over and the run has proved something.
async fn blow_after_blow(
    options: &Options,
    servers: &mut [RedisServer],
    crew: &mut Crew,
    history: &mut History,
) -> Result<Scores> {
    let mut random = Rng::with_seed(options.seed);
    let mut scores = Scores::new();
    for blow in Blow::ALL {
        let (name, meaning) = blow.about();
        scores.entry(name).or_default().meaning = meaning;
    }
    let began = Instant::now();
    let mut round = Vec::new();
    // The workers need some time to start.
    sleep(Duration::from_millis(500)).await;
    loop {
        if is_over(options, began, &scores, history) {
            return Ok(scores);
        }
        let blow = match round.pop() {
            Some(blow) => blow,
            None => {
                round = Blow::ALL.to_vec();
                random.shuffle(&mut round);
                continue;
            }
        };
        let mut arm = Arm {
            servers,
            crew,
            history,
            random: &mut random,
        };
        let hit = arm.strike(blow).await?;
        let score = scores.entry(blow.about().0).or_default();
        score.struck += 1;
        score.hit += u64::from(hit);
        sleep(Duration::from_millis(random.u64(100..600))).await;
        crew.hear(history);
        progress(began.elapsed(), options.time, &scores, history);
    }
}

/// A run that has proved nothing yet continues, up to a limit.
pub(crate) fn is_over(
    options: &Options,
    began: Instant,
    scores: &Scores,
    history: &History,
) -> bool {
    let elapsed = began.elapsed();
    let all_hit = || scores.values().all(|score| score.hit > 0);
    elapsed >= 3 * options.time || elapsed >= options.time && all_hit() && history.has_overlaps()
}

/// The keys that should not exist any more.
async fn left_in(server: &RedisServer) -> Result<(), String> {
    let mut keys: Vec<_> = server.dump().await.into_keys().collect();
    keys.retain(|key| !outlives_locks(key));
    let channels = server.pubsub_channels().await;
    match keys.is_empty() && channels.is_empty() {
        true => Ok(()),
        false => Err(format!("{keys:?} {channels:?}")),
    }
}

/// A line of progress that replaces the previous one.
pub(crate) fn progress(elapsed: Duration, of: Duration, scores: &Scores, history: &History) {
    let strikes: u64 = scores.values().map(|score| score.struck).sum();
    let _ = write!(
        std::io::stderr(),
        "\r{:>4} of {} s: {} operations, {} grants, {strikes} faults, {} promises broken ",
        elapsed.as_secs(),
        of.as_secs(),
        history.operations(),
        history.granted.values().sum::<u64>(),
        history.broken.len(),
    );
}
