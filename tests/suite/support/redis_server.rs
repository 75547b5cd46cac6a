//! A Redis server of the test's own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs, io};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisResult};
use tempfile::TempDir;
use tower_distributed_lock::store::redis::AclRules;

use super::{Authority, Credentials, Dump, Monitor, Process, ReservedPort, dump, eventually};

#[path = "redis_server/builder.rs"]
mod builder;
#[cfg(test)]
#[path = "redis_server/tests.rs"]
mod tests;
#[path = "redis_server/tls.rs"]
mod tls;

pub(crate) use builder::Builder;
use tls::Tls;

/// The client name of the tests' own connections, which [`RedisServer::client_list`] and [`Monitor`] leave out.
pub(super) const OBSERVER: &str = "observer";

const LIMIT: Duration = Duration::from_secs(30);

/// The distance from a node's port to its cluster bus port. Only Redis 7 and newer can change it.
const TO_THE_BUS: u16 = 10_000;

/// A `redis-server` on a loopback port of its own, with a directory of its own; killed on drop.
///
/// The binary is `redis-server`, or the one in the environment variable `REDIS_SERVER`. Nothing is persisted unless
/// [configured](Builder::config), so a restart finds an empty database.
#[derive(Debug)]
pub(crate) struct RedisServer {
    process: Process,
    settings: Builder,
    port: ReservedPort,
    /// Reserved, so that no other process gets it.
    bus_port: Option<ReservedPort>,
    tls_port: Option<ReservedPort>,
    directory: TempDir,
}

impl RedisServer {
    /// Starts a server with the default configuration.
    pub(crate) async fn start() -> Self {
        Self::builder().start().await
    }

    /// Makes a user with these rights. Returns the address for it.
    pub(crate) async fn user(&self, name: &str, rules: &AclRules) -> String {
        let mut acl = redis::cmd("ACL");
        acl.arg("SETUSER").arg(name).arg("on").arg(">secret");
        acl.arg(rules.iter().collect::<Vec<_>>());
        let mut redis = self.connection().await;
        let made = acl.exec_async(&mut redis).await;
        made.expect("the rules are valid");
        format!("redis://{name}:secret@127.0.0.1:{}", self.port())
    }

    pub(crate) fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.number()
    }

    /// The password, if there is one.
    pub(super) fn password(&self) -> Option<&str> {
        self.settings.password.as_deref()
    }

    /// The port for the other nodes of its cluster.
    pub(super) fn bus_port(&self) -> u16 {
        let port = self.bus_port.as_ref();
        port.expect("it is a node of a cluster").number()
    }

    pub(super) fn process_id(&self) -> u32 {
        self.process.id()
    }

    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// `redis://127.0.0.1:<port>`, with the password if there is one; `rediss://` if there is no port without TLS.
    pub(crate) fn url(&self) -> String {
        self.url_on(self.port())
    }

    /// The address on another port, that of a [`Proxy`](super::Proxy).
    pub(super) fn url_on(&self, port: u16) -> String {
        let scheme = if self.settings.is_tls_alone() {
            "rediss"
        } else {
            "redis"
        };
        format!("{scheme}://{}127.0.0.1:{port}", self.credentials())
    }

    /// `rediss://<host>:<port>`, where `host` is a name of this machine.
    pub(crate) fn tls_url(&self, host: &str) -> String {
        let port = self.tls_port.as_ref();
        let port = port.map_or(self.port(), ReservedPort::number);
        format!("rediss://{}{host}:{port}", self.credentials())
    }

    /// The address of its unix socket.
    pub(crate) fn unix_url(&self) -> String {
        let socket = self.directory.path().join("redis.sock");
        let query = self
            .settings
            .password
            .iter()
            .map(|password| format!("?pass={password}"));
        format!(
            "redis+unix://{}{}",
            socket.display(),
            query.collect::<String>()
        )
    }

    /// A new connection with a long time limit, for the test's own commands.
    pub(crate) async fn connection(&self) -> MultiplexedConnection {
        let connection = self.try_connection().await;
        connection.expect("the server accepts a connection")
    }

    /// SIGKILL. It is dead on return; [`restart`](Self::restart) brings it back.
    pub(crate) fn kill9(&mut self) {
        self.process.kill9();
    }

    /// SIGTERM. Redis has written what it persists, and has ended, on return.
    pub(crate) async fn stop(&mut self) {
        self.process.terminate();
        self.process.end().await;
    }

    /// Starts the server again on the same port, with the same directory and configuration. A running server is stopped
    /// first.
    pub(crate) async fn restart(&mut self) {
        if self.process.ended().is_none() {
            self.stop().await;
        }
        self.process = self.settings.spawn(&self.directory);
        self.until_it_answers().await;
    }

    /// SIGSTOP: the server is silent, and its connections stay open.
    pub(crate) fn pause(&mut self) {
        self.process.pause();
    }

    /// SIGCONT.
    pub(crate) fn resume(&mut self) {
        self.process.resume();
    }

    /// Removes the directory of the server.
    pub(crate) fn remove_directory(&self) {
        fs::remove_dir_all(self.directory.path()).expect("the directory is removed");
    }

    /// The log of the server since its last start.
    pub(crate) fn log(&self) -> String {
        self.process.output()
    }

    /// Collects the commands that the server executes from now on.
    pub(crate) async fn monitor(&self) -> Monitor<'_> {
        Monitor::start(self).await
    }

    /// The content of database 0, at one instant.
    pub(crate) async fn dump(&self) -> Dump {
        let dump = dump::read(&mut self.connection().await).await;
        dump.expect("the server shows its keys")
    }

    /// The same, without the turns of waiters outside the line, which are over within milliseconds.
    pub(crate) async fn dump_without_turns(&self) -> Dump {
        let mut dump = self.dump().await;
        dump.retain(|key, entry| {
            let ends_now = entry.ttl.is_some_and(|ttl| ttl.as_millis() <= 5);
            !(ends_now && key.starts_with("tower_lock_busy:"))
        });
        dump
    }

    /// Every channel with subscribers, and their number (SUBSCRIBE and, from Redis 7 on, SSUBSCRIBE).
    pub(crate) async fn pubsub_channels(&self) -> BTreeMap<String, usize> {
        let mut found = self.channels("CHANNELS", "NUMSUB").await;
        // Sentinels find each other by it.
        found.remove("__sentinel__:hello");
        if self.knows_shards().await {
            found.extend(self.channels("SHARDCHANNELS", "SHARDNUMSUB").await);
        }
        found
    }

    /// The fields of CLIENT LIST, one map per connection, without the tests' own connections.
    pub(crate) async fn client_list(&self) -> Vec<BTreeMap<String, String>> {
        let clients: String = self.ask(&["CLIENT", "LIST"]).await;
        let fields = |line: &str| {
            line.split(' ')
                .filter_map(|field| field.split_once('='))
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect::<BTreeMap<_, _>>()
        };
        clients
            .lines()
            .map(fields)
            .filter(|client| client["name"] != OBSERVER && client["cmd"] != "monitor")
            .collect()
    }

    pub(super) fn client(&self) -> Client {
        let address = if self.settings.is_tls_alone() {
            self.unix_url()
        } else {
            self.url()
        };
        Client::open(address).expect("the address is well formed")
    }

    /// Whether the server has sharded channels: Redis 7 and newer, and Valkey.
    pub(crate) async fn knows_shards(&self) -> bool {
        let known: Vec<redis::Value> = self.ask(&["COMMAND", "INFO", "SSUBSCRIBE"]).await;
        known != [redis::Value::Nil]
    }

    async fn channels(&self, list: &str, count: &str) -> BTreeMap<String, usize> {
        let channels: Vec<String> = self.ask(&["PUBSUB", list]).await;
        let question = ["PUBSUB", count]
            .into_iter()
            .chain(channels.iter().map(String::as_str));
        self.ask(&question.collect::<Vec<_>>()).await
    }

    /// Sends one command, and expects an answer.
    pub(crate) async fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let reply = self.try_ask(words).await;
        reply.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// Sends one command.
    pub(super) async fn try_ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let command = redis::cmd(words[0]).arg(&words[1..]).to_owned();
        command.query_async(&mut self.try_connection().await?).await
    }

    pub(super) async fn try_connection(&self) -> RedisResult<MultiplexedConnection> {
        let patient = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(LIMIT))
            .set_response_timeout(Some(LIMIT));
        let client = self.client();
        let mut connection = client
            .get_multiplexed_async_connection_with_config(&patient)
            .await?;
        let name = redis::cmd("CLIENT").arg("SETNAME").arg(OBSERVER).to_owned();
        name.query_async::<()>(&mut connection).await?;
        // Redis 6.2 does not show the name to a monitor.
        let mark = redis::cmd("PING").arg(OBSERVER).to_owned();
        if !self.settings.sentinel {
            mark.query_async::<()>(&mut connection).await?;
        }
        Ok(connection)
    }

    async fn until_it_answers(&mut self) {
        eventually("redis-server answers", LIMIT, async || {
            if let Some(status) = self.process.ended() {
                panic!("redis-server has ended ({status}) instead of starting");
            }
            let mut connection = self.try_connection().await?;
            // PING is refused while the server loads its data, and INFO is not.
            redis::cmd("PING")
                .query_async::<()>(&mut connection)
                .await?;
            let info: String = redis::cmd("INFO")
                .arg("server")
                .query_async(&mut connection)
                .await?;
            let ours = format!("process_id:{}", self.process.id());
            assert!(
                info.lines().any(|line| line == ours),
                "a stranger answers: {info}"
            );
            RedisResult::Ok(())
        })
        .await;
    }

    fn credentials(&self) -> String {
        let password = self.settings.password.iter();
        password.map(|password| format!(":{password}@")).collect()
    }
}
