//! The example server, as a process.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::{Process, eventually, example};

/// A running `examples/server.rs`; killed on drop.
#[derive(Debug)]
pub(crate) struct DemoServer {
    pub(crate) process: Process,
    url: String,
}

impl DemoServer {
    /// Starts it on a free port with these environment variables (`REDIS_URL`, `LOCK_LEASE_MS`, `LOCK_WAIT_MS`) and no others, and waits
    /// until it has printed its address.
    pub(crate) async fn start(variables: &[(&str, &str)]) -> Self {
        Self::run(example("server"), variables).await
    }

    async fn run(binary: PathBuf, variables: &[(&str, &str)]) -> Self {
        const LIMIT: Duration = Duration::from_secs(30);
        let mut command = Command::new(&binary);
        // The person who runs the tests may have set `REDIS_URL`, and no test may write to that server.
        command
            .env_clear()
            .envs(variables.iter().copied())
            .env("LISTEN", "127.0.0.1:0");
        let mut process = Process::spawn(&mut command).unwrap_or_else(|error| {
            panic!(
                "cannot run `{}`: {error}\n`./scripts/test` builds it, and so does `cargo build --example server`.",
                binary.display()
            )
        });
        let url = eventually("the demo server prints its address", LIMIT, async || {
            if let Some(status) = process.ended() {
                panic!("the demo server has ended ({status})");
            }
            address_in(&process.output())
        })
        .await;
        Self { process, url }
    }

    /// `http://127.0.0.1:<port>`.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The address with this path that the server prints after its own.
    pub(crate) async fn printed_url(&self, path: &str) -> String {
        eventually(
            "the address is printed",
            Duration::from_secs(30),
            async || {
                let output = self.process.output();
                let words = output.split_whitespace();
                let mut urls =
                    words.filter(|word| word.starts_with("http://") && word.ends_with(path));
                urls.next().map(str::to_owned)
            },
        )
        .await
    }
}

/// The address in the first whole line that has one.
fn address_in(output: &str) -> Option<String> {
    const PREFIX: &str = "http://127.0.0.1:";
    let (lines, _) = output.rsplit_once('\n')?;
    let (_, rest) = lines.split_once(PREFIX)?;
    let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some(format!("{PREFIX}{port}"))
}

mod tests {
    use super::address_in;
    use crate::support::{DemoServer, RedisServer};

    #[tokio::test]
    async fn a_demo_server_listens_where_it_says_and_ends_when_asked() {
        let redis = RedisServer::start().await;
        let mut server = DemoServer::start(&[("REDIS_URL", &redis.url())]).await;
        reqwest::get(server.url()).await.unwrap();
        server.process.terminate();
        server.process.end().await;
    }

    #[tokio::test]
    #[should_panic(expected = "cargo build --example server")]
    async fn a_missing_binary_says_how_to_build_it() {
        DemoServer::run("/nowhere/server".into(), &[]).await;
    }

    #[test]
    fn half_a_line_is_no_address() {
        assert_eq!(address_in(""), None);
        assert_eq!(address_in("listening on http://127.0.0.1:80"), None);
        let whole = "INFO start\nlistening on http://127.0.0.1:8080\nINFO";
        assert_eq!(address_in(whole).as_deref(), Some("http://127.0.0.1:8080"));
        let slash = "http://127.0.0.1:8080/\n";
        assert_eq!(address_in(slash).as_deref(), Some("http://127.0.0.1:8080"));
    }
}
