//! What weakens a deployment.

use std::fmt;

/// Something that should be looked at. Its `Display` says what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// Keys are evicted when memory is full, locks and token counters among them.
    Evicts {
        /// The server's policy.
        policy: String,
    },
    /// Nothing is written to disk: a restart frees every lock that is held.
    NotPersistent,
    /// Only snapshots are written to disk: a restart frees the locks that were taken since the last one, and brings back
    /// older ones.
    SnapshotsOnly,
    /// The server could not write to its disk the last time that it tried.
    DiskFails,
    /// A replica does not have the data yet: a failover to it would lose locks.
    ReplicaSyncing {
        /// Its address.
        replica: String,
        /// What the server says of it.
        state: String,
    },
    /// The server follows another one, and takes no locks.
    NotPrimary,
    /// The server is older than what is supported and tested.
    OldServer {
        /// Its version.
        version: String,
        /// The oldest one that is supported.
        oldest: &'static str,
    },
    /// The user may not do what locks need. No lock is taken on such a connection.
    MissingRights {
        /// The rights to grant, such as `+pexpire`.
        rules: Vec<String>,
    },
    /// Something could not be seen.
    Unseen {
        /// What could not.
        what: &'static str,
        /// The right that would show it.
        rule: &'static str,
    },
    /// Two members of a quorum are one server, and fail together.
    SameServer {
        /// Their numbers, from 1.
        members: [usize; 2],
    },
    /// A member of a quorum or a Cluster does not answer.
    MemberSilent {
        /// Its number, from 1.
        member: usize,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Evicts { policy } => write!(
                f,
                "maxmemory-policy {policy} evicts locks and token counters: set it to noeviction"
            ),
            Self::NotPersistent => f.write_str(
                "nothing is written to disk, so a restart frees what is held: set appendonly to yes",
            ),
            Self::SnapshotsOnly => f.write_str(
                "only snapshots are written to disk, so a restart brings back an older state: set appendonly to yes",
            ),
            Self::DiskFails => {
                f.write_str("the server could not write to its disk: look into its log")
            }
            Self::ReplicaSyncing { replica, state } => write!(
                f,
                "replica {replica} has not all data yet ({state}): a failover to it loses locks"
            ),
            Self::NotPrimary => {
                f.write_str("the server is a replica and takes no locks: connect to its primary")
            }
            Self::OldServer { version, oldest } => {
                write!(f, "version {version} is not supported: use {oldest} or newer")
            }
            Self::MissingRights { rules } => {
                write!(f, "the user lacks rights: grant it {}", rules.join(" "))
            }
            Self::Unseen { what, rule } => {
                write!(f, "{what} cannot be seen: grant the user {rule}")
            }
            Self::SameServer {
                members: [one, other],
            } => write!(
                f,
                "stores {one} and {other} are one server, and fail together: use independent ones"
            ),
            Self::MemberSilent { member } => write!(f, "store {member} does not answer"),
        }
    }
}
