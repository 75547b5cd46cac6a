//! `examples/compose`: three servers behind a proxy, on one Redis. The services of the file run as plain
//! processes.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::{NO_TIME, get, locks_in, put};
use crate::support::project::read;
use crate::support::{DemoServer, RedisServer};

fn compose() -> Value {
    serde_saphyr::from_str(&read("examples/compose/compose.yaml"))
        .unwrap_or_else(|error| panic!("compose.yaml: {error}"))
}

/// Forwards each connection to the next server.
struct RoundRobin {
    url: String,
    task: JoinHandle<()>,
}

impl RoundRobin {
    async fn over(servers: &[DemoServer]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let targets: Vec<_> = servers
            .iter()
            .map(|server| server.url().trim_start_matches("http://").to_owned())
            .collect();
        let task = tokio::spawn(async move {
            for target in targets.into_iter().cycle() {
                let (mut client, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(target).await.unwrap();
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Self { url, task }
    }
}

impl Drop for RoundRobin {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test]
async fn three_replicas_behind_a_proxy_lose_no_update() {
    let compose = compose();
    let service = &compose["services"]["server"];
    let replicas = service["deploy"]["replicas"].as_u64().unwrap();
    assert_eq!(replicas, 3);
    let redis = RedisServer::start().await;
    let url = redis.url();
    // The environment of the file, with local addresses in place of the containers'.
    let environment: Vec<_> = service["environment"]
        .as_object()
        .unwrap()
        .iter()
        .filter_map(|(name, value)| match name.as_str() {
            "LISTEN" => None,
            "ADMIN_LISTEN" => Some((name.as_str(), "127.0.0.1:0")),
            "REDIS_URL" => Some((name.as_str(), url.as_str())),
            _ => Some((name.as_str(), value.as_str()?)),
        })
        .collect();
    let mut servers = Vec::new();
    for _ in 0..replicas {
        servers.push(DemoServer::start(&environment).await);
    }
    let proxy = RoundRobin::over(&servers).await;

    let hold = Duration::from_millis(20);
    let writes = (0..9).map(|n| {
        let url = proxy.url.clone();
        async move { put(&url, "42", hold, &n.to_string()).await }
    });
    let written = futures_util::future::join_all(writes).await;
    let versions: BTreeSet<_> = written
        .iter()
        .map(|answer| answer.body["version"].as_u64().unwrap())
        .collect();
    assert_eq!(versions, (1..=9).collect(), "{written:?}");
    for server in &servers {
        let read = get(server.url(), "42", NO_TIME).await;
        assert_eq!(read.body["version"], 9);
    }
    for mut server in servers {
        server.process.terminate();
        server.process.end().await;
    }
    assert_eq!(locks_in(&redis).await, Vec::<String>::new());
}

#[test]
fn the_compose_file_matches_the_server_and_the_proxy() {
    let compose = compose();
    let settings = read("examples/server/settings.rs");
    let server = &compose["services"]["server"];
    for name in server["environment"].as_object().unwrap().keys() {
        assert!(
            settings.contains(&format!("\"{name}\"")),
            "the server does not read {name}"
        );
    }
    let build = &server["build"];
    let context = format!("examples/compose/{}", build["context"].as_str().unwrap());
    let dockerfile = build["dockerfile"].as_str().unwrap();
    let dockerfile = read(&format!("{context}/{dockerfile}"));
    assert!(dockerfile.contains("--example server"));
    // The proxy forwards to the ports on which the servers listen.
    let caddyfile = read("examples/compose/Caddyfile");
    for variable in ["LISTEN", "ADMIN_LISTEN"] {
        let address = server["environment"][variable].as_str().unwrap();
        let (_, port) = address.rsplit_once(':').unwrap();
        assert!(
            caddyfile.contains(&format!("port {port}\n")),
            "{variable}={address}"
        );
        let published = compose["services"]["proxy"]["ports"].as_array().unwrap();
        let ends = |entry: &Value| entry.as_str().unwrap().ends_with(&format!("{port}:{port}"));
        assert!(published.iter().any(ends), "{port} is not published");
    }
    for (name, service) in compose["services"].as_object().unwrap() {
        let image = service["image"].is_string() || service["build"].is_object();
        assert!(image, "{name} has neither image nor build");
    }
}
