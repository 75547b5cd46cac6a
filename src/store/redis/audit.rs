//! Reads the configuration of Redis servers for an audit, as far as the user's rights allow.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::future::join_all;
use redis::{ServerErrorKind, Value};

use super::connection::Purpose;
use super::connection::SharedConnection;
use super::connector::Connector;
use super::info::Info;
use super::node::Node;
use super::reply::read;
use super::{failure, rights};
use crate::audit::{Audit, Deployment, Warning};
use crate::error::StoreError;
use crate::telemetry;

/// The oldest version of Redis that runs the scripts.
const OLDEST: [u64; 2] = [6, 2];
const OLDEST_NAME: &str = "Redis 6.2";

/// When the append-only file is written to the disk: `always`, `everysec` or `no`.
const FSYNC: &str = "appendfsync";

/// When the server makes snapshots; empty if never.
const SNAPSHOTS: &str = "save";

mod behind_sentinels;

/// Audits one server and its sentinels. `acknowledging`: the store waits for replicas.
pub(super) async fn look_at_one(node: &Node, acknowledging: bool) -> Result<Audit, StoreError> {
    let connection = node.first(Purpose::Commands);
    let mut audit = look_at(connection).await?;
    if let Connector::Sentinels(sentinels) = node.connector() {
        behind_sentinels::add(&mut audit, connection, &sentinels.group, acknowledging).await;
    }
    Ok(audit)
}

async fn look_at(connection: &Arc<SharedConnection>) -> Result<Audit, StoreError> {
    let missing = match connection.call(&rights::question()).await {
        Ok((answer, _)) => rights::missing(answer)?,
        // The audit uses no connection whose user lacks rights.
        Err(error) => return rights::found_missing(&error).map(blind).ok_or(error),
    };
    let Some(info) = ask(connection, "INFO", &[]).await? else {
        let mut audit = blind(missing);
        audit.warnings.push(unseen("the server", "+info"));
        return Ok(audit);
    };
    let received = SystemTime::now();
    let info = Info::parse(&read::<String>(info)?);
    let clock_offset = info.clock_offset(received);
    if let (Some(server), Some(offset)) = (info.field("run_id"), clock_offset) {
        telemetry::store::clock_offset(server, offset);
    }
    let settings = settings(connection, [FSYNC, SNAPSHOTS]).await?;

    let mut audit = Audit::new(deployment(&info, &settings));
    audit.server_id = info.field("run_id").map(str::to_owned);
    audit.facts = vec![
        ("server", server(&info)),
        ("replicas", replicas(&info)),
        ("persistence", persistence(&info, &settings).0),
        ("memory", memory(&info)),
    ];
    audit
        .facts
        .extend(clock_offset.map(|offset| ("clock", clock(offset))));
    audit.warnings = warnings(&info, &settings);
    audit.warnings.extend(lacking(missing));
    Ok(audit)
}

/// Audits the servers of a Cluster.
pub(super) async fn look_at_all(servers: &[(String, Arc<SharedConnection>)]) -> Audit {
    let mut audit = Audit::new(Deployment::Failover);
    let masters = format!("a Cluster, {} masters", servers.len());
    audit.facts.push(("server", masters));
    let looks = servers.iter().map(|(_, connection)| look_at(connection));
    audit.members = join_all(looks).await;
    for (n, member) in (1..).zip(&audit.members) {
        if member.is_err() {
            audit.warnings.push(Warning::MemberSilent { member: n });
        }
    }
    audit
}

/// The audit of a server of which only the missing rights are known.
fn blind(missing: Vec<String>) -> Audit {
    let mut audit = Audit::new(Deployment::Unknown);
    audit.warnings.extend(lacking(missing));
    audit
}

/// Settings that `INFO` does not contain, by name, without those that the user may not read.
type Settings = HashMap<String, String>;

async fn settings(
    connection: &Arc<SharedConnection>,
    names: [&str; 2],
) -> Result<Settings, StoreError> {
    let mut settings = Settings::new();
    for name in names {
        if let Some(answer) = ask(connection, "CONFIG", &["GET", name]).await? {
            settings.extend(read::<Settings>(answer)?);
        }
    }
    Ok(settings)
}

fn is_logged(info: &Info) -> bool {
    info.is("aof_enabled", "1")
}

fn is_replaced(info: &Info) -> bool {
    let others = info.field("connected_slaves").unwrap_or("0") != "0";
    others || info.is("cluster_enabled", "1") || !info.is("role", "master")
}

fn deployment(info: &Info, settings: &Settings) -> Deployment {
    if is_replaced(info) {
        return Deployment::Failover;
    }
    match is_logged(info) {
        true if settings.get(FSYNC).is_some_and(|fsync| fsync == "always") => Deployment::Durable,
        // The default of servers, so it also holds if the user may not read the setting.
        true => Deployment::Delayed,
        false => Deployment::Volatile,
    }
}

fn server(info: &Info) -> String {
    let (product, version) = info.server();
    let mode = ["redis_mode", "server_mode"];
    let mode = mode.into_iter().find_map(|name| info.field(name));
    let role = match info.field("role") {
        Some("master") | None => "master",
        Some(_) => "replica",
    };
    format!("{product} {version}, {}, {role}", mode.unwrap_or("?"))
}

fn replicas(info: &Info) -> String {
    let replicas = info.replicas();
    let synced = replicas.iter().filter(|(_, state)| state == "online");
    let synced = synced.count();
    match replicas.len() {
        0 => "none".to_owned(),
        count => format!("{count}, {synced} of them up to date"),
    }
}

/// What the server writes to its disk, and what weakens that.
fn persistence(info: &Info, settings: &Settings) -> (String, Vec<Warning>) {
    let unseen = |what| unseen(what, "+config|get");
    match (
        is_logged(info),
        settings.get(FSYNC),
        settings.get(SNAPSHOTS),
    ) {
        (true, Some(fsync), _) => (format!("append-only file, fsync {fsync}"), Vec::new()),
        (true, None, _) => (
            "append-only file, fsync unknown".to_owned(),
            vec![unseen("how often the append-only file is synced")],
        ),
        (false, _, Some(save)) if save.is_empty() => {
            ("none".to_owned(), vec![Warning::NotPersistent])
        }
        (false, _, Some(save)) => (
            format!("snapshots only, save {save}"),
            vec![Warning::SnapshotsOnly],
        ),
        (false, _, None) => (
            "no append-only file, snapshots unknown".to_owned(),
            vec![Warning::NotPersistent, unseen("whether snapshots are made")],
        ),
    }
}

fn memory(info: &Info) -> String {
    let field = |name| info.field(name).unwrap_or("?");
    let limit = match field("maxmemory") {
        "0" | "?" => "without a limit".to_owned(),
        _ => format!("of {}", field("maxmemory_human")),
    };
    let (used, policy) = (field("used_memory_human"), field("maxmemory_policy"));
    format!("{used} {limit}, {policy}")
}

/// The clock of the server beside that of this process.
fn clock(offset: f64) -> String {
    let side = if offset < 0.0 { "behind" } else { "ahead of" };
    format!("{:.3} s {side} this process's", offset.abs())
}

fn warnings(info: &Info, settings: &Settings) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if !info.is_at_least(OLDEST) {
        warnings.push(Warning::OldServer {
            version: info.server().1.to_owned(),
            oldest: OLDEST_NAME,
        });
    }
    if !info.is("role", "master") {
        warnings.push(Warning::NotMaster);
    }
    let syncing = info.replicas().into_iter();
    let syncing = syncing.filter(|(_, state)| state != "online");
    warnings.extend(syncing.map(|(replica, state)| Warning::ReplicaSyncing { replica, state }));
    warnings.extend(persistence(info, settings).1);
    let failed = ["aof_last_write_status", "rdb_last_bgsave_status"];
    if failed.into_iter().any(|last| info.is(last, "err")) {
        warnings.push(Warning::DiskFails);
    }
    let policy = info.field("maxmemory_policy");
    if let Some(policy) = policy.filter(|policy| *policy != "noeviction") {
        let policy = policy.to_owned();
        warnings.push(Warning::Evicts { policy });
    }
    warnings
}

fn lacking(rules: Vec<String>) -> Option<Warning> {
    (!rules.is_empty()).then_some(Warning::MissingRights { rules })
}

fn unseen(what: &'static str, rule: &'static str) -> Warning {
    Warning::Unseen { what, rule }
}

/// Sends a command; `None` if the user may not send it, or the service does not offer it.
async fn ask(
    connection: &Arc<SharedConnection>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_too_old_is_a_warning() {
        let settings = [(FSYNC, "always"), (SNAPSHOTS, "")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let settings = Settings::from(settings);
        for (version, expected) in [("6.0.9", 1), ("6.2.0", 0)] {
            let text = format!("redis_version:{version}\r\nrole:master\r\naof_enabled:1\r\n");
            let warnings = warnings(&Info::parse(&text), &settings);
            assert_eq!(warnings.len(), expected, "{warnings:?}");
            let is_old = |warning: &Warning| matches!(warning, Warning::OldServer { version, .. } if version == "6.0.9");
            assert!(warnings.iter().all(is_old));
        }
    }
}
