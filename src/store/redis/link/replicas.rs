//! How many replicas must acknowledge a change before it counts.

/// How many replicas must acknowledge a grant, a renewal or a release before it counts;
/// [`RedisStoreBuilder::replicas`](crate::store::redis::RedisStoreBuilder::replicas) sets it.
///
/// Redis replicates asynchronously. A master that fails may lose its latest grants, and a master that does not know that it was
/// replaced continues to grant. With this setting the store sends `WAIT` after each change, on the same connection, and the
/// change counts only when enough replicas have it.
///
/// | | too few acknowledgements |
/// |---|---|
/// | acquire | it is taken back, and tried again while the request waits; then it fails with [`Unacknowledged`](crate::error::StoreErrorKind::Unacknowledged) |
/// | renew | the deadline stays where it was: without replicas for the rest of a lease, the hold is lost |
/// | release, with a record or without | `Unacknowledged`: the hold has ended, but nothing is confirmed |
/// | owner check of a hold that lives on | the same, nothing is confirmed |
/// | read of a record | the same, the record is no answer: a former master may have it alone |
///
/// A layer decides about an unconfirmed release by its [`Confirm`](crate::Confirm): by the deadline, or, with
/// [`Confirm::Strict`](crate::Confirm::Strict), always with 500.
///
/// # The default
///
/// `None`, behind sentinels and in a Cluster as well, although a failover can then grant a lock twice, even a planned
/// `SENTINEL FAILOVER`, whose former master stays writable for some ten seconds. Redisson asks by default, since 4.0, whether any
/// replica has a new lock. The default here is another one because `All`, which would be that default, keeps neither promise without
/// a condition, while it makes the outage of a replica an outage of the locks, adds a round trip to each change, and needs the rights
/// `+wait` and `+role`. `AtLeast(n)` with the number of all replicas keeps both promises, and only the program knows that number.
/// So the choice is the program's, and an [audit](crate::LockClient::audit) warns (`grants_alone`) until it is made.
///
/// During a failover, a store with `AtLeast(1)` grants nothing until a replica follows the new master, 10 to 11 s with the defaults
/// of Sentinel. A request waits for that as long as its wait lasts.
///
/// # What is promised
///
/// S1 is lease exclusion: live holds satisfy their modes' rule. S5 is confirmed exclusion: work whose releases were
/// confirmed never overlapped.
///
/// | deployment | | S1 | S5 |
/// |---|---|---|---|
/// | one server | `None` | while it keeps its data and its clock | yes, also after it lost them |
/// | master and replicas, with sentinels or without | `None` | not across a failover that loses the write | unless a former master still accepts writes |
/// | | `AtLeast(n)` | across a failover to one of those that acknowledged; to any, if *n* is the number of replicas | as long as a former master keeps fewer than *n* replicas |
/// | | `All` | across every failover, while the master knows of its replicas | unless a former master still counts replicas that follow it |
///
/// From Redis 7 on, a lease is replicated as a time of the day. If the clock of a promoted replica is ahead, leases end that much
/// earlier, and S1 does not hold for the difference, whatever the setting; an audit compares the clocks (`replica_clock`).
///
/// Otherwise only `AtLeast` with the number of all replicas keeps both promises without a condition: a promoted replica does not follow its
/// former master any more, so the former master never has enough. The price is that all replicas must be up.
///
/// # What it costs
///
/// Each change costs one more round trip, and the replicas' answer. `WAIT` blocks the whole connection, so one `WAIT` serves all
/// changes before it: throughput grows with the number of callers as before. If a replica hangs, every change waits for the
/// [timeout](crate::store::redis::RedisStoreBuilder::replica_timeout) and fails, until the master drops the replica (`repl-timeout`, 60
/// seconds). The user needs the rights `+wait`, and `+role` for `All`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Replicas {
    /// The master's answer is enough.
    #[default]
    None,
    /// At least this many; `AtLeast(0)` is `None`.
    AtLeast(usize),
    /// As many as the master counts as connected, like Redisson. A server that never had a replica needs none. Once this store
    /// has seen a replica, at least one must acknowledge: a master without replicas may have been replaced.
    All,
}

impl Replicas {
    /// Whether replicas must acknowledge.
    pub(crate) fn are_wanted(self) -> bool {
        !matches!(self, Self::None | Self::AtLeast(0))
    }
}
