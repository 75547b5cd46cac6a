//! Warnings: what weakens a deployment.

use std::time::Duration;

/// A setting or state that needs attention. Its `Display` says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// Keys are evicted when memory is full, locks and token counters among them.
    #[error("maxmemory-policy {policy} evicts locks and token counters: set it to noeviction")]
    Evicts {
        /// The server's policy.
        policy: String,
    },
    /// Nothing is written to disk: a restart frees every lock that is held.
    #[error("nothing is written to disk, so a restart frees what is held: set appendonly to yes")]
    NotPersistent,
    /// Only snapshots are written to disk: a restart frees the locks that were taken since the last snapshot, and
    /// restores older ones.
    #[error(
        "only snapshots are written to disk, so a restart brings back an older state: set appendonly to yes"
    )]
    SnapshotsOnly,
    /// The last write of the server to its disk failed.
    #[error("the server could not write to its disk: read its log")]
    DiskFails,
    /// A replica does not have all data yet: a failover to it would lose locks.
    #[error("replica {replica} does not have all data yet ({state}): a failover to it loses locks")]
    ReplicaSyncing {
        /// Its address.
        replica: String,
        /// Its state, as the server names it.
        state: String,
    },
    /// The server is a replica, and takes no locks.
    #[error("the server is a replica and takes no locks: connect to its master")]
    NotMaster,
    /// The server is older than the oldest supported version.
    #[error("version {version} is not supported: use {oldest} or newer")]
    OldServer {
        /// Its version.
        version: String,
        /// The oldest one that is supported.
        oldest: &'static str,
    },
    /// The user lacks rights that locks need. No lock is taken on such a connection.
    #[error("the user lacks rights: grant it {}", .rules.join(" "))]
    MissingRights {
        /// The rights to grant, such as `+pexpire`.
        rules: Vec<String>,
    },
    /// A setting could not be read.
    #[error("{what} cannot be seen: grant the user {rule}")]
    Unseen {
        /// The setting.
        what: &'static str,
        /// The right that the user needs to read it.
        rule: &'static str,
    },
    /// A configured sentinel cannot be used.
    #[error("sentinel {sentinel} cannot be used: {why}")]
    SentinelSilent {
        /// Its address.
        sentinel: String,
        /// Why it cannot be used.
        why: String,
    },
    /// There are too few sentinels to replace a master when one of them fails together with it.
    #[error("of {known} sentinels, none may be lost: run three or more, apart from each other")]
    FewSentinels {
        /// How many there are.
        known: usize,
    },
    /// There are sentinels that the store is not configured with, so it cannot ask them.
    #[error("the store asks {listed} of {known} sentinels: give it all addresses")]
    UnlistedSentinels {
        /// How many are configured.
        listed: usize,
        /// How many there are.
        known: usize,
    },
    /// No sentinel reaches enough of the others to replace the master: when the master fails, no locks can be taken.
    #[error(
        "no failover is possible: {reachable} of {known} sentinels can be reached, quorum {quorum}"
    )]
    NoQuorum {
        /// How many the best-connected sentinel reaches.
        reachable: usize,
        /// How many there are. More than half of them must agree on a failover.
        known: usize,
        /// How many must agree that the master is down.
        quorum: usize,
    },
    /// No replica follows the master: no server can take its place.
    #[error("no replica follows the master, so that none can take its place")]
    NoReplica,
    /// A master that is cut off from its replicas continues to grant locks while another server replaces it
    /// (`min-replicas-to-write` is 0, and the store waits for no replicas).
    #[error(
        "a master that is cut off continues to grant locks: set min-replicas-to-write to 1, or have replicas acknowledge"
    )]
    GrantsAlone,
    /// A master that is cut off from its replicas stops granting locks too late: another server may have replaced it
    /// already.
    #[error(
        "a master that is cut off grants locks for {lag:?} and is replaced after {down_after:?}: set min-replicas-max-lag lower than that"
    )]
    GrantsAloneFor {
        /// How long it continues (`min-replicas-max-lag`).
        lag: Duration,
        /// The time after which the sentinels may begin to replace it.
        down_after: Duration,
    },
    /// Holds with the default lease may expire before a failover ends, so that their holders lose them.
    #[error("a master is replaced after {down_after:?}, in which leases of {lease:?} may run out: set down-after-milliseconds below {:?}", .lease.saturating_mul(2) / 3)]
    SlowFailover {
        /// The time after which the sentinels may begin a failover.
        down_after: Duration,
        /// The default lease.
        lease: Duration,
    },
    /// Two members of a quorum are one server, and fail together.
    #[error("stores {} and {} are one server, and fail together: use independent ones", .members[0], .members[1])]
    SameServer {
        /// Their numbers, from 1.
        members: [usize; 2],
    },
    /// A member of a quorum or a Cluster does not answer.
    #[error("store {member} does not answer")]
    MemberSilent {
        /// Its number, from 1.
        member: usize,
    },
}

/// Writes down each kind once.
macro_rules! kinds {
    ($($variant:ident: $kind:literal,)+) => {
        impl Warning {
            /// Every [`kind`](Self::kind).
            #[cfg(any(test, feature = "metrics"))]
            pub(crate) const KINDS: &[&str] = &[$($kind),+];

            /// Its kind, for labels: the name of the variant in lower case, such as `evicts`.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $kind,)+
                }
            }
        }
    };
}

kinds! {
    Evicts: "evicts",
    NotPersistent: "not_persistent",
    SnapshotsOnly: "snapshots_only",
    DiskFails: "disk_fails",
    ReplicaSyncing: "replica_syncing",
    NotMaster: "not_master",
    OldServer: "old_server",
    MissingRights: "missing_rights",
    Unseen: "unseen",
    SentinelSilent: "sentinel_silent",
    FewSentinels: "few_sentinels",
    UnlistedSentinels: "unlisted_sentinels",
    NoQuorum: "no_quorum",
    NoReplica: "no_replica",
    GrantsAlone: "grants_alone",
    GrantsAloneFor: "grants_alone_for",
    SlowFailover: "slow_failover",
    SameServer: "same_server",
    MemberSilent: "member_silent",
}

#[cfg(test)]
mod tests {
    use super::Warning;

    /// The name of a variant in lower case, with underscores.
    fn lower(name: &str) -> String {
        let mut text = String::new();
        for letter in name.chars() {
            if letter.is_uppercase() && !text.is_empty() {
                text.push('_');
            }
            text.extend(letter.to_lowercase());
        }
        text
    }

    #[test]
    fn every_kind_is_listed_under_the_name_of_its_variant() {
        let source = include_str!("warning.rs");
        let (_, rest) = source.split_once("pub enum Warning {").expect("the enum");
        let (variants, _) = rest.split_once("\n}").expect("its end");
        let variants = variants.lines().filter_map(|line| {
            let name = line.strip_prefix("    ")?.trim_end_matches([',', '{', ' ']);
            name.starts_with(char::is_uppercase).then(|| lower(name))
        });
        let variants: Vec<_> = variants.collect();
        assert_eq!(variants, Warning::KINDS);
        assert_eq!(Warning::GrantsAlone.kind(), "grants_alone");
        assert_eq!(Warning::MemberSilent { member: 1 }.kind(), "member_silent");
    }
}
