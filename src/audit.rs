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

use serde::Serialize;

use crate::error::StoreError;

mod sentinels;
mod serial;
mod table;
mod warning;

pub use sentinels::Sentinels;
pub use warning::Warning;

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
    /// The state of the sentinels, if the store uses sentinels and one of them answers.
    pub sentinels: Option<Sentinels>,
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
            sentinels: None,
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
    /// Whether it is kept.
    pub kept: Kept,
}

/// Whether a promise is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kept {
    /// Always.
    Yes,
    /// Except in this case.
    Unless(&'static str),
    /// Not offered.
    No,
    /// It is unknown.
    Unknown,
}

impl Deployment {
    /// What the deployment promises:
    ///
    /// * **S1**, lease exclusion: at the store, live holds on one key satisfy their modes' rule.
    /// * **S5**, confirmed exclusion: two pieces of work whose release was confirmed never overlapped.
    /// * **S6**, fencing: the tokens of a key rise strictly.
    pub fn promises(self) -> [Promise; 3] {
        use Kept::{No, Unknown, Unless, Yes};
        let [s1, s5, s6] = match self {
            Self::Memory => [Yes, Yes, Unless("the process ends")],
            Self::Durable => [Unless("the server's clock is stepped"), Yes, Yes],
            Self::Delayed => [
                Unless("the server loses power, or its clock is stepped"),
                Yes,
                Yes,
            ],
            Self::Volatile => [
                Unless("the server ends, is flushed, or evicts keys"),
                Yes,
                Unless("the server ends and its clock is set back"),
            ],
            Self::Failover => [
                Unless("a failover loses the write"),
                Unless("an old master that is cut off still answers"),
                Unless("a failover loses the write and meets a clock that is behind"),
            ],
            Self::Quorum { .. } => [
                Unless("a majority loses its data, or its clocks' rate"),
                Yes,
                No,
            ],
            Self::Unknown => [Unknown; 3],
        };
        [
            ("S1", "lease exclusion", s1),
            ("S5", "confirmed exclusion", s5),
            ("S6", "rising tokens", s6),
        ]
        .map(|(id, name, kept)| Promise { id, name, kept })
    }
}

impl fmt::Display for Deployment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("the memory of one process"),
            Self::Durable => f.write_str("one server, every write on its disk"),
            Self::Delayed => f.write_str("one server, writes on its disk a moment later"),
            Self::Volatile => f.write_str("one server, which forgets when it ends"),
            Self::Failover => f.write_str("servers that replace each other"),
            Self::Quorum { members } => write!(f, "a majority of {members} stores"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Yes => f.write_str("yes"),
            Self::Unless(what) => write!(f, "unless {what}"),
            Self::No => f.write_str("no"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}
