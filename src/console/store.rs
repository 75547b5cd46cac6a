//! The store: its audit, and the connections of this process.

use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::time::timeout;

use super::{millis, problem};
use crate::audit::Audit;
use crate::client::LockClient;

/// How long an audit may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// The audit of the store, and its time.
pub(super) struct StoreView {
    at: Instant,
    audit: Result<AuditJson, String>,
}

/// `api/store`.
#[derive(Debug, Serialize)]
pub(super) struct StoreJson {
    /// How long ago the audit was made; `null` before the first one.
    audited_ms: Option<u64>,
    audit: Option<AuditJson>,
    /// Why there is no audit.
    error: Option<String>,
    /// The connections of this process to Redis, of all its stores together.
    connections: Vec<ConnectionsJson>,
}

#[derive(Debug, Clone, Serialize)]
struct AuditJson {
    deployment: String,
    facts: Vec<FactJson>,
    promises: Vec<PromiseJson>,
    warnings: Vec<String>,
    sentinels: Option<String>,
    members: Vec<StoreMember>,
}

#[derive(Debug, Clone, Serialize)]
struct FactJson {
    name: &'static str,
    text: String,
}

#[derive(Debug, Clone, Serialize)]
struct PromiseJson {
    id: &'static str,
    name: &'static str,
    kept: String,
}

/// One of several stores or servers.
#[derive(Debug, Clone, Serialize)]
struct StoreMember {
    facts: Vec<FactJson>,
    warnings: Vec<String>,
    error: Option<String>,
}

#[derive(Debug, Serialize)]
struct ConnectionsJson {
    carries: &'static str,
    up: u64,
    opened: u64,
    failed: u64,
    unanswered: u64,
    last_minute: LatencyJson,
}

/// The answers of the last minute.
#[derive(Debug, Serialize)]
struct LatencyJson {
    answers: u64,
    mean_us: u64,
    median_us: u64,
    p99_us: u64,
    longest_us: u64,
}

impl StoreView {
    pub(super) async fn look(locks: &LockClient) -> Self {
        let audit = match timeout(PATIENCE, locks.audit()).await {
            Ok(Ok(audit)) => Ok(AuditJson::from(&audit)),
            Ok(Err(error)) => Err(problem::text(&error)),
            Err(_) => Err("the store did not answer in time".to_owned()),
        };
        Self {
            at: Instant::now(),
            audit,
        }
    }

    pub(super) fn age(&self) -> Duration {
        self.at.elapsed()
    }

    /// The audit, with the present state of the connections.
    pub(super) fn json(&self) -> StoreJson {
        StoreJson {
            audited_ms: Some(millis::of(self.age())),
            audit: self.audit.as_ref().ok().cloned(),
            error: self.audit.as_ref().err().cloned(),
            connections: connections(),
        }
    }
}

impl StoreJson {
    /// Before the first audit.
    pub(super) fn unknown() -> Self {
        Self {
            audited_ms: None,
            audit: None,
            error: Some("the store has not answered yet".to_owned()),
            connections: connections(),
        }
    }
}

impl From<&Audit> for AuditJson {
    fn from(audit: &Audit) -> Self {
        let promises = audit.promises().map(|promise| PromiseJson {
            id: promise.id,
            name: promise.name,
            kept: promise.kept.to_string(),
        });
        let members = audit.members.iter().map(|member| match member {
            Ok(member) => StoreMember {
                facts: facts(member),
                warnings: warnings(member),
                error: None,
            },
            Err(error) => StoreMember {
                facts: Vec::new(),
                warnings: Vec::new(),
                error: Some(error.to_string()),
            },
        });
        Self {
            deployment: audit.deployment.to_string(),
            facts: facts(audit),
            promises: promises.into(),
            warnings: warnings(audit),
            sentinels: audit.sentinels.as_ref().map(ToString::to_string),
            members: members.collect(),
        }
    }
}

fn facts(audit: &Audit) -> Vec<FactJson> {
    let facts = audit.facts.iter();
    let facts = facts.map(|(name, text)| FactJson {
        name,
        text: text.clone(),
    });
    facts.collect()
}

fn warnings(audit: &Audit) -> Vec<String> {
    audit.warnings.iter().map(ToString::to_string).collect()
}

/// Starts to measure latencies.
#[cfg(feature = "redis")]
pub(super) fn watch() {
    crate::telemetry::store::watch();
}

#[cfg(not(feature = "redis"))]
pub(super) fn watch() {}

#[cfg(feature = "redis")]
fn connections() -> Vec<ConnectionsJson> {
    let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    let carriers = crate::telemetry::store::carriers().into_iter();
    let used = carriers.filter(|carrier| carrier.opened + carrier.failed > 0);
    let all = used.map(|carrier| ConnectionsJson {
        carries: carrier.carries,
        up: carrier.up,
        opened: carrier.opened,
        failed: carrier.failed,
        unanswered: carrier.unanswered,
        last_minute: LatencyJson {
            answers: carrier.last_minute.answers,
            mean_us: micros(carrier.last_minute.mean),
            median_us: micros(carrier.last_minute.median),
            p99_us: micros(carrier.last_minute.p99),
            longest_us: micros(carrier.last_minute.longest),
        },
    });
    all.collect()
}

#[cfg(not(feature = "redis"))]
fn connections() -> Vec<ConnectionsJson> {
    Vec::new()
}
