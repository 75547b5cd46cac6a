//! Audits of deployments: which promises hold, and what weakens them.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tower_distributed_lock::LockError> {
//! use tower_distributed_lock::audit::Deployment;
//! use tower_distributed_lock::{LockClient, MemoryStore};
//!
//! let audit = LockClient::new(MemoryStore::new()).audit().await?;
//! assert_eq!(audit.deployment, Deployment::Memory);
//! assert!(audit.warnings.is_empty());
//! println!("{audit}"); // a table
//! # Ok(())
//! # }
//! ```

use std::fmt;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use serde_json::json;

use crate::error::StoreError;

mod table;

/// The audit of a store: its deployment, the promises that hold on it, and warnings. Its `Display` is
/// a table.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Audit {
    /// The row of the table of guarantees that applies.
    pub deployment: Deployment,
    /// Facts as pairs of name and value, in the order of the report.
    pub facts: Vec<(&'static str, String)>,
    /// Settings and states that need attention.
    pub warnings: Vec<Warning>,
    /// The audits of the member stores or servers.
    pub members: Vec<Result<Audit, StoreError>>,
    /// The identity of the server: two audits with the same id are of one server.
    pub server_id: Option<String>,
}

impl Audit {
    /// An audit with a deployment and nothing else.
    pub fn new(deployment: Deployment) -> Self {
        Self {
            deployment,
            facts: Vec::new(),
            warnings: Vec::new(),
            members: Vec::new(),
            server_id: None,
        }
    }

    /// The warnings, and those of the members, whose members may be servers.
    #[cfg(any(test, feature = "metrics"))]
    pub(crate) fn every_warning(&self) -> Vec<&Warning> {
        let members = self.members.iter().flatten();
        let of_members = members.flat_map(Self::every_warning);
        self.warnings.iter().chain(of_members).collect()
    }

    /// The promises of the deployment.
    pub fn promises(&self) -> [Promise; 3] {
        self.deployment.promises()
    }
}

/// A setting or state that needs attention.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Warning {
    /// A short name for labels and alerts, such as `evicts`.
    pub kind: &'static str,
    /// What is wrong, and what to do about it.
    pub text: String,
}

impl Warning {
    /// The kinds of the stores of this crate. Metrics report each of them, also where it was not found.
    #[cfg(any(test, feature = "metrics"))]
    pub(crate) fn kinds() -> impl Iterator<Item = &'static str> {
        "disk_fails evicts few_sentinels grants_alone grants_alone_for member_silent missing_rights no_quorum no_replica \
         not_master not_persistent old_server records_fill_memory replica_clock replica_syncing same_server sentinel_silent \
         slow_failover snapshots_only unlisted_sentinels unseen"
            .split(' ')
    }

    /// A warning of this kind. The text says what to do.
    pub fn new(kind: &'static str, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { kind, text }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The kind of deployment, on which the promises depend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Deployment {
    /// The memory of one process.
    Memory,
    /// One server that writes to its disk before it answers.
    Durable,
    /// One server that writes to its disk shortly after it has answered.
    Delayed,
    /// One server that loses all data, or the latest, when it ends.
    Volatile,
    /// Servers with failover: replicas, Sentinel, Cluster.
    Failover,
    /// A majority of several stores.
    Quorum {
        /// The number of stores.
        members: usize,
    },
    /// A store without an audit, or a server that the user may not ask.
    Unknown,
}

/// One promise, and whether it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Promise {
    /// Its short name: `S1`, `S5`, `S6`.
    pub id: &'static str,
    /// What is promised.
    pub name: &'static str,
    /// Whether it is kept: `yes`, `no`, `unknown`, or `unless` and the exception.
    pub kept: &'static str,
}

impl Deployment {
    /// What the deployment promises:
    ///
    /// * **S1**, lease exclusion: at the store, live holds on one key satisfy their modes' rule.
    /// * **S5**, confirmed exclusion: two pieces of work whose release was confirmed never overlapped.
    /// * **S6**, fencing: the tokens of a key rise strictly.
    pub fn promises(self) -> [Promise; 3] {
        let (_, [s1, s5, s6]) = self.row();
        [
            ("S1", "lease exclusion", s1),
            ("S5", "confirmed exclusion", s5),
            ("S6", "rising tokens", s6),
        ]
        .map(|(id, name, kept)| Promise { id, name, kept })
    }

    /// Its description, and whether S1, S5 and S6 are kept.
    fn row(self) -> (&'static str, [&'static str; 3]) {
        const YES: &str = "yes";
        const STEPPED: &str = "unless the server's clock is stepped";
        const POWER: &str = "unless the server loses power, or its clock is stepped";
        const ENDS: &str = "unless the server ends, is flushed, or evicts keys";
        const ENDS_BACK: &str = "unless the server ends and its clock is set back";
        const FAILOVER: &str =
            "unless a failover loses the write, or the new master's clock is ahead";
        const OLD_MASTER: &str = "unless an old master that is cut off still answers";
        const BEHIND: &str = "unless a failover loses the write and meets a clock that is behind";
        const MAJORITY: &str = "unless a majority loses its data, or its clocks' rate";
        match self {
            Self::Memory => (
                "the memory of one process",
                [YES, YES, "unless the process ends"],
            ),
            Self::Durable => ("one server, every write on its disk", [STEPPED, YES, YES]),
            Self::Delayed => (
                "one server, writes on its disk a moment later",
                [POWER, YES, YES],
            ),
            Self::Volatile => (
                "one server, which forgets when it ends",
                [ENDS, YES, ENDS_BACK],
            ),
            Self::Failover => (
                "servers that replace each other",
                [FAILOVER, OLD_MASTER, BEHIND],
            ),
            Self::Quorum { .. } => ("a majority of several stores", [MAJORITY, YES, "no"]),
            Self::Unknown => ("unknown", ["unknown"; 3]),
        }
    }
}

impl fmt::Display for Deployment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quorum { members } => write!(f, "a majority of {members} stores"),
            other => f.write_str(other.row().0),
        }
    }
}

/// Fields under their names, facts as pairs, a member that did not answer as `{"error": …}`.
impl Serialize for Audit {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut audit = to.serialize_struct("Audit", 6)?;
        audit.serialize_field("deployment", &self.deployment.to_string())?;
        audit.serialize_field("promises", &self.promises())?;
        audit.serialize_field("facts", &self.facts)?;
        audit.serialize_field("warnings", &self.warnings)?;
        let members = self.members.iter().map(|member| match member {
            Ok(member) => json!(member),
            Err(error) => json!({ "error": error.to_string() }),
        });
        audit.serialize_field("members", &members.collect::<Vec<_>>())?;
        audit.serialize_field("server_id", &self.server_id)?;
        audit.end()
    }
}
