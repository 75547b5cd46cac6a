//! Reads the configuration of Redis servers for an audit, as far as the user's rights allow.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redis::{ServerErrorKind, Value};
use tokio::time::timeout;

use crate::audit::{Audit, Deployment, Warning};
use crate::error::StoreError;
use crate::store::redis::StoreInner;
use crate::store::redis::link::address::Address;
use crate::store::redis::link::connector::Connector;
use crate::store::redis::link::sentinel;
use crate::store::redis::link::wire::Wire;
use crate::store::redis::link::{Link, Purpose};
use crate::store::redis::protocol::failure;
use crate::store::redis::protocol::reply::read;
use crate::store::redis::protocol::rights;
use crate::store::redis::servers::node::Node;
use crate::telemetry;
use info::Info;
use sentinels::Sentinels;

mod checks;
mod info;
mod sentinels;

/// When the append-only file is written to the disk: `always`, `everysec` or `no`.
const FSYNC: &str = "appendfsync";

/// When the server makes snapshots; empty if never.
const SNAPSHOTS: &str = "save";

/// How many replicas a master needs for writes, and how many seconds they may be behind: this keeps a master that is cut off from
/// granting locks.
const LEAST: &str = "min-replicas-to-write";
const LAG: &str = "min-replicas-max-lag";

/// What is known of one server. [`checks`] derive the warnings from it.
struct Seen {
    info: Info,
    /// Replicas, and how many seconds their clocks are ahead of the server's.
    clocks: Vec<(Address, f64)>,
    is_behind_sentinels: bool,
    /// The sentinels' state, if there are any and one answers.
    sentinels: Option<Sentinels>,
    /// Whether replicas must acknowledge changes.
    acknowledging: bool,
    /// Whether this store has records.
    recording: bool,
}

/// Audits the servers of a Cluster.
pub(crate) async fn look_at_all(nodes: &[(String, Arc<Node>)], store: &StoreInner) -> Audit {
    let mut audit = Audit::new(Deployment::Failover);
    let masters = format!("a Cluster, {} masters", nodes.len());
    audit.facts.push(("server", masters));
    audit.members = join_all(nodes.iter().map(|(_, node)| look_at(node, store))).await;
    for (n, member) in (1..).zip(&audit.members) {
        if member.is_err() {
            let text = format!("store {n} does not answer");
            audit.warnings.push(Warning::new("member_silent", text));
        }
    }
    audit
}

/// Audits one server, and its sentinels.
pub(crate) async fn look_at(node: &Node, store: &StoreInner) -> Result<Audit, StoreError> {
    let connection = node.first(Purpose::Commands);
    let mut audit = Audit::new(Deployment::Unknown);
    let mut seen = Seen {
        info: Info::parse(""),
        clocks: Vec::new(),
        is_behind_sentinels: matches!(node.connector(), Connector::Sentinels(_)),
        sentinels: None,
        acknowledging: store.acknowledging,
        recording: store.recording.load(std::sync::atomic::Ordering::Relaxed),
    };
    let answered = connection.call(&node.rights()).await;
    let sent = answered.as_ref().ok().map(|(_, sent)| sent);
    let address = sent.and_then(|sent| address(node, sent));
    // The audit uses no connection whose user lacks rights.
    if answered.is_ok() {
        seen.ask(connection).await?;
        audit
            .warnings
            .extend((!seen.is_seen()).then(|| {
                Warning::new("unseen", "the server cannot be seen: grant the user +info")
            }));
    }
    match answered.and_then(|(answer, _)| rights::suffice(answer)) {
        Err(error) if rights::are_missing(&error) => {
            let text = sentinel::detail(&error);
            audit.warnings.push(Warning::new("missing_rights", text));
        }
        sufficient => sufficient?,
    }
    if seen.is_seen() {
        if let (Some(server), Some(offset)) = (address, seen.info.clock_offset()) {
            telemetry::store::clock_offset(server, offset);
        }
        seen.clocks = clocks(node, &seen.info, connection).await;
        audit.deployment = seen.deployment();
        audit.server_id = seen.info.field("run_id").map(str::to_owned);
        audit.facts = seen.facts();
    }
    if let Connector::Sentinels(watched) = node.connector() {
        // This also holds without replicas, or if the user may not ask the server.
        audit.deployment = Deployment::Failover;
        let (state, silent) = sentinels::health(&watched.group).await;
        audit.warnings.extend(silent);
        let shown = state.as_ref().map(|state| ("sentinels", state.fact()));
        audit.facts.extend(shown);
        seen.sentinels = state;
    }
    audit.warnings.extend(checks::all(&seen));
    Ok(audit)
}

/// The address of the server that has answered on this connection, which stays the same when it restarts.
fn address(node: &Node, sent: &Wire) -> Option<String> {
    if let Some(followed) = &sent.master {
        return Some(followed.master.address.to_string());
    }
    let (host, port) = node.connector().server()?;
    Some(port.map_or(host.clone(), |port| format!("{host}:{port}")))
}

impl Seen {
    /// Asks the server about itself, as far as the user may.
    async fn ask(&mut self, connection: &Arc<Link>) -> Result<(), StoreError> {
        if let Some(answer) = ask(connection, "INFO", &[]).await? {
            self.info = Info::parse(&read::<String>(answer)?);
        }
        for name in [FSYNC, SNAPSHOTS, LEAST, LAG] {
            if let Some(answer) = ask(connection, "CONFIG", &["GET", name]).await? {
                self.info.extend(read::<HashMap<_, _>>(answer)?);
            }
        }
        Ok(())
    }

    /// Whether the server has told about itself.
    fn is_seen(&self) -> bool {
        self.info.field("redis_version").is_some()
    }

    fn is_logged(&self) -> bool {
        self.info.is("aof_enabled", "1")
    }

    fn deployment(&self) -> Deployment {
        let others = self.info.field("connected_slaves").unwrap_or("0") != "0";
        if others || self.info.is("cluster_enabled", "1") || !self.info.is("role", "master") {
            return Deployment::Failover;
        }
        match (self.is_logged(), self.info.field(FSYNC)) {
            (true, Some("always")) => Deployment::Durable,
            // The default of servers, so it also holds if the user may not read the setting.
            (true, _) => Deployment::Delayed,
            (false, _) => Deployment::Volatile,
        }
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let info = &self.info;
        let (product, version) = info.server();
        let mode = ["redis_mode", "server_mode"];
        let mode = mode.into_iter().find_map(|name| info.field(name));
        let role = match info.field("role") {
            Some("master") | None => "master",
            Some(_) => "replica",
        };
        let replicas = match info.replicas().len() {
            0 => "none".to_owned(),
            count => format!("{count}, {} of them up to date", info.followers()),
        };
        let mut facts = vec![
            (
                "server",
                format!("{product} {version}, {}, {role}", mode.unwrap_or("?")),
            ),
            ("replicas", replicas),
            ("persistence", self.persistence()),
        ];
        facts.extend(info.clock_offset().map(|offset| {
            let side = if offset < 0.0 { "behind" } else { "ahead of" };
            (
                "clock",
                format!("{:.3} s {side} this process's", offset.abs()),
            )
        }));
        facts
    }

    /// What the server writes to its disk.
    fn persistence(&self) -> String {
        match (
            self.is_logged(),
            self.info.field(FSYNC),
            self.info.field(SNAPSHOTS),
        ) {
            (true, fsync, _) => format!("append-only file, fsync {}", fsync.unwrap_or("unknown")),
            (false, _, Some("")) => "none".to_owned(),
            (false, _, Some(save)) => format!("snapshots only, save {save}"),
            (false, _, None) => "no append-only file, snapshots unknown".to_owned(),
        }
    }
}

/// The replicas that can be asked, and how many seconds the clock of each is ahead of the master's.
async fn clocks(node: &Node, info: &Info, master: &Arc<Link>) -> Vec<(Address, f64)> {
    let time = redis::cmd("TIME");
    let here = Instant::now();
    let of_master = node.connector().like();
    let (began, answer) = (here.elapsed(), master.query(&time).await);
    let Some(expected) = answer.ok().and_then(|answer| offset(answer, began, here)) else {
        return Vec::new();
    };
    let asking = info.replicas().into_iter().map(async |(name, _)| {
        let replica = of_master.at(&name).with_credentials().await.ok()?;
        let (mut connection, ..) = replica.open(None, &[]).await.ok()?;
        let began = here.elapsed();
        let [answer] =
            <[_; 1]>::try_from(connection.ask(std::slice::from_ref(&time)).await.ok()?).ok()?;
        Some((name, offset(answer, began, here)? - expected))
    });
    let limit = of_master.timeouts.connect;
    let asking = asking.map(|asking| timeout(limit, asking));
    join_all(asking)
        .await
        .into_iter()
        .filter_map(|asked| asked.ok().flatten())
        .collect()
}

/// How many seconds a clock is ahead of one that was zero at `here`, by the answer to `TIME` that was asked for at `began`.
fn offset(answer: Value, began: Duration, here: Instant) -> Option<f64> {
    let (seconds, micros): (u64, u64) = read(answer).ok()?;
    let there = Duration::from_secs(seconds) + Duration::from_micros(micros);
    let asked = (began + here.elapsed()) / 2;
    Some(there.as_secs_f64() - asked.as_secs_f64())
}

/// Sends a command; `None` if the user may not send it, or the service does not offer it.
async fn ask(
    connection: &Arc<Link>,
    command: &str,
    words: &[&str],
) -> Result<Option<Value>, StoreError> {
    let command = redis::cmd(command).arg(words).to_owned();
    match connection.query(&command).await? {
        Value::ServerError(error) => match error.kind() {
            Some(ServerErrorKind::NoPerm | ServerErrorKind::ResponseError) => Ok(None),
            _ => Err(failure::refusal(error)),
        },
        answer => Ok(Some(answer)),
    }
}
