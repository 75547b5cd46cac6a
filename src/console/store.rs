//! The store: its audit, and the connections of this process.

use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::time::timeout;

use super::{millis, problem};
use crate::audit::{Audit, Promise};
use crate::client::LockClient;
#[cfg(feature = "redis")]
pub(super) use crate::telemetry::store::watch;
#[cfg(feature = "redis")]
use crate::telemetry::store::{Carrier, carriers};

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
    connections: Vec<Carrier>,
}

#[derive(Debug, Clone, Serialize)]
struct AuditJson {
    deployment: String,
    facts: Vec<FactJson>,
    promises: [Promise; 3],
    warnings: Vec<String>,
    sentinels: Option<String>,
    members: Vec<StoreMember>,
}

#[derive(Debug, Clone, Serialize)]
struct FactJson {
    name: &'static str,
    text: String,
}

/// One of several stores or servers.
#[derive(Debug, Clone, Serialize)]
struct StoreMember {
    facts: Vec<FactJson>,
    warnings: Vec<String>,
    error: Option<String>,
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
            connections: carriers(),
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
            connections: carriers(),
        }
    }
}

impl From<&Audit> for AuditJson {
    fn from(audit: &Audit) -> Self {
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
            promises: audit.promises(),
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

/// There are no connections without Redis.
#[cfg(not(feature = "redis"))]
type Carrier = ();

#[cfg(not(feature = "redis"))]
fn carriers() -> Vec<Carrier> {
    Vec::new()
}

#[cfg(not(feature = "redis"))]
pub(super) fn watch() {}
