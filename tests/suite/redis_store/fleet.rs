//! One key that many processes want: the cost of a section does not depend on the number of waiters.

use std::collections::BTreeMap;

use tokio::task::JoinSet;
use tower_distributed_lock::LockClient;

use super::*;
use crate::support::eventually;

/// Each has a store and connections of its own, like a process.
const CLIENTS: usize = 24;

/// How many sections each has.
const ROUNDS: usize = 20;

#[tokio::test]
async fn a_section_costs_the_same_however_many_processes_wait() {
    let permits = LockMode::permits(1);
    for mode in [
        LockMode::Reentrant,
        LockMode::Write,
        LockMode::Fair,
        permits,
    ] {
        let server = RedisServer::start().await;
        let clients = warm_clients(&server, CLIENTS, mode).await;
        let before = calls(&server).await;
        let mut working = JoinSet::new();
        for client in clients {
            working.spawn(async move {
                for _ in 0..ROUNDS {
                    let guard = client.lock("k").mode(mode).wait(Duration::from_secs(120));
                    guard.await.unwrap().release().await.unwrap();
                }
            });
        }
        working.join_all().await;
        let after = calls(&server).await;
        let sections = (CLIENTS * ROUNDS) as f64;
        let each = |command: &str| more(command, &before, &after) as f64 / sections;
        // To ask, to ask again when it listens, to ask when it is called, to release; and a poll now and then. Were all of
        // them woken, a section would cost one script for each that waits.
        assert!(
            each("evalsha") < 6.0,
            "{mode:?}: {} scripts",
            each("evalsha")
        );
        assert!(
            each("publish") <= 2.2,
            "{mode:?}: {} messages",
            each("publish")
        );
    }
}

/// One question of a process is called for, not each of its requests that has asked once.
#[tokio::test]
async fn a_permit_costs_the_same_however_many_requests_of_a_process_wait() {
    const REQUESTS: usize = 24;
    let mode = LockMode::permits(8);
    let server = RedisServer::start().await;
    let clients = warm_clients(&server, 2, mode).await;
    let before = calls(&server).await;
    let mut working = JoinSet::new();
    for client in clients.iter().cycle().take(2 * REQUESTS) {
        let client = client.clone();
        working.spawn(async move {
            for _ in 0..ROUNDS {
                let guard = client.lock("k").mode(mode).wait(Duration::from_secs(120));
                let guard = guard.await.unwrap();
                tokio::time::sleep(Duration::from_millis(2)).await;
                guard.release().await.unwrap();
            }
        });
    }
    working.join_all().await;
    let scripts = more("evalsha", &before, &calls(&server).await);
    let each = scripts as f64 / (2 * REQUESTS * ROUNDS) as f64;
    // To ask when it is called, to ask again in the place of the next request, to release; and what the start costs.
    assert!(each < 4.5, "{each} scripts");
}

#[tokio::test]
async fn readers_that_a_writer_lets_in_ask_once_and_cost_no_message_each() {
    let server = RedisServer::start().await;
    let writer = LockClient::new(RedisStore::connect(server.url()).await.unwrap());
    let writes = writer.lock("k").mode(LockMode::Write).await.unwrap();
    let mut reading = JoinSet::new();
    for _ in 0..CLIENTS {
        let client = LockClient::new(RedisStore::connect(server.url()).await.unwrap());
        let request = client.lock("k").mode(LockMode::Read);
        reading.spawn(request.wait(Duration::from_secs(120)).acquire());
    }
    eventually("all readers listen", Duration::from_secs(30), async || {
        let channels = server.pubsub_channels().await;
        channels.get("tower_lock_enter:{k}") == Some(&CLIENTS)
    })
    .await;

    let monitor = server.monitor().await;
    writes.release().await.unwrap();
    let guards = reading.join_all().await;
    let lines = monitor.lines().await;
    assert!(guards.iter().all(Result::is_ok), "{guards:#?}");
    let mut lines = lines.iter().filter(|line| line.contains("{k}"));
    // The first message is that of the release. A question before it was a poll.
    let of_release = r#" lua] "PUBLISH" "tower_lock_enter:{k}""#;
    assert!(lines.any(|line| line.contains(of_release)), "no message");
    let after: Vec<_> = lines.collect();
    let count = |part: &str| after.iter().filter(|line| line.contains(part)).count();
    assert_eq!(count("\"EVALSHA\""), CLIENTS, "{after:#?}");
    // The other one is for Redisson's clients.
    assert_eq!(count(" lua] \"PUBLISH\""), 1, "{after:#?}");
}

/// Clients whose stores have their connections and their scripts.
async fn warm_clients(server: &RedisServer, count: usize, mode: LockMode) -> Vec<LockClient> {
    let mut clients = Vec::new();
    for _ in 0..count {
        let store = RedisStore::connect(server.url()).await.unwrap();
        let client = LockClient::new(store);
        drop(client.lock("warm").mode(mode).await.unwrap());
        clients.push(client);
    }
    clients
}

/// The number of executions of each command.
async fn calls(server: &RedisServer) -> BTreeMap<String, u64> {
    let mut redis = server.connection().await;
    let info = redis::cmd("INFO").arg("commandstats").to_owned();
    let stats: String = info.query_async(&mut redis).await.unwrap();
    let call = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
    };
    stats.lines().filter_map(call).collect()
}

/// How often a command was executed in between.
fn more(command: &str, before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> u64 {
    let count = |calls: &BTreeMap<String, u64>| calls.get(command).copied().unwrap_or(0);
    count(after) - count(before)
}
