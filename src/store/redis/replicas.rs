//! How many replicas must know of a change before it counts.

use std::time::Duration;

/// How many replicas must acknowledge a grant, a renewal or a release before it counts;
/// [`RedisStoreBuilder::replicas`](super::RedisStoreBuilder::replicas) sets it.
///
/// Redis replicates behind the client's back: a master that dies may take along what it has just granted, and a master that
/// was replaced without knowing it goes on granting. With this setting the store sends `WAIT` after each change, on the
/// same connection, and believes the change only when enough replicas have it.
///
/// | | too few acknowledgements |
/// |---|---|
/// | acquire | it is taken back, and fails with [`Unacknowledged`](crate::StoreErrorKind::Unacknowledged) |
/// | renew | the deadline stays where it was: without replicas for the rest of a lease, the hold is lost |
/// | release, with a record or without | `Unacknowledged`: the hold has ended, but nothing is confirmed |
/// | owner check of a hold that lives on | the same, nothing is confirmed |
///
/// A layer decides about an unconfirmed release by its [`Confirm`](crate::Confirm): by the deadline, or, with
/// [`Confirm::Strict`](crate::Confirm::Strict), always with 500.
///
/// # What is promised
///
/// S1 is lease exclusion: live holds satisfy their modes' rule. S5 is confirmed exclusion: work whose releases were
/// confirmed never overlapped.
///
/// | deployment | | S1 | S5 |
/// |---|---|---|---|
/// | one server | `None` | while it keeps its data and its clock | yes, also after it lost them |
/// | master and replicas, with sentinels or without | `None` | not across a failover that loses the write | unless a former master still answers |
/// | | `AtLeast(n)` | across a failover to one of those that acknowledged; to any, if *n* is the number of replicas | as long as a former master keeps fewer than *n* replicas |
/// | | `All` | across every failover, while the master knows of its replicas | unless a former master still counts replicas that follow it |
///
/// Only `AtLeast` of as many as there are keeps both promises without a condition: the replica that was promoted does not
/// follow its former master any more, which so never has enough. The price is that all of them must be there.
///
/// # What it costs
///
/// One round trip more, and the replicas' answer, for each change. `WAIT` keeps the whole connection waiting, so one of
/// them serves everything that was done before it: throughput grows with the number of callers as before. A replica that
/// hangs makes every change wait for the [timeout](super::RedisStoreBuilder::replica_timeout), and fail, until the master
/// gives it up (`repl-timeout`, 60 seconds). The user needs the rights `+wait`, and `+role` for `All`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Replicas {
    /// The master's word is enough.
    #[default]
    None,
    /// At least as many; `AtLeast(0)` is `None`.
    AtLeast(usize),
    /// As many as the master counts as connected, like Redisson. None at all is enough on a server that never had any; but
    /// once this store has seen a replica, at least one: a master that is left alone may have been replaced.
    All,
}

/// The setting with its patience.
#[derive(Debug, Clone, Copy)]
pub(super) struct Acknowledgement {
    pub(super) replicas: Replicas,
    pub(super) within: Duration,
}

impl Default for Acknowledgement {
    fn default() -> Self {
        Self {
            replicas: Replicas::None,
            // Redisson's `slavesSyncTimeout`.
            within: Duration::from_secs(1),
        }
    }
}

impl Acknowledgement {
    /// Whether anything is to be acknowledged.
    pub(super) fn is_wanted(self) -> bool {
        !matches!(self.replicas, Replicas::None | Replicas::AtLeast(0))
    }
}
