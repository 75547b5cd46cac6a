//! The state of a lock in a store.

use std::time::Duration;

use serde::{Serialize, Serializer};
use uuid::Uuid;

use super::process::ProcessInfo;
use crate::lock::{HoldId, LockMode};

/// How many holders and how many waiters an [`Inspection`] shows at most.
pub(crate) const SHOWN: usize = 100;

/// The state of one key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Inspection {
    /// Its holders, in no particular order.
    pub holders: Vec<Holder>,
    /// The waiters that the store knows: a fair queue in its order, and the waiting readers and those in line of this crate.
    /// It does not know others.
    pub waiters: Vec<String>,
    /// Whether there are more holders or waiters: at most a hundred of each are shown, so that the cost of an inspection is
    /// bounded.
    pub truncated: bool,
    /// How many permits the key has: what those who hold one have named, or what was set by
    /// [`LockAdmin::set_permits`](crate::LockAdmin::set_permits) or by Redisson. `None` if it is no key of permits, or none
    /// is held and no limit was set.
    pub limit: Option<u32>,
}

impl Inspection {
    /// An inspection with these holders and waiters.
    pub fn new(holders: Vec<Holder>, waiters: Vec<String>) -> Self {
        Self {
            holders,
            waiters,
            truncated: false,
            limit: None,
        }
    }

    /// Whether these are all holders of the key. If not, they are some of those that share the lock, and others each time.
    pub fn has_all_holders(&self) -> bool {
        // An exclusive lock has one, however many wait.
        let mut modes = self.holders.iter().map(|holder| holder.mode);
        !self.truncated || modes.all(LockMode::is_exclusive)
    }

    /// Whether the key has a holder.
    pub fn is_held(&self) -> bool {
        !self.holders.is_empty()
    }
}

/// One holder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Holder {
    /// Its id in the store: `<client uuid>:<number>`; the number is a thread id if the client is Redisson. A permit of
    /// Redisson has the id that Redisson gave its user: 32 hexadecimal digits.
    pub id: String,
    /// Its mode. The store does not distinguish `Fair` from `Reentrant`: both are `Reentrant`.
    pub mode: LockMode,
    /// How many times it has entered, by the store's count.
    pub count: u64,
    /// How long its hold lives without renewal; [`Duration::MAX`] if it never ends, which no client of the protocol does.
    /// It is serialized as `remaining_ms`, and as `null` if it never ends.
    #[serde(rename = "remaining_ms", serialize_with = "millis")]
    pub remaining: Duration,
    /// Its process, if that has announced itself: see
    /// [`LockClientBuilder::announce`](crate::client::LockClientBuilder::announce). It is serialized unless it is `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessInfo>,
    /// The route of its request, or its [label](crate::LockRequest::label), if its process has announced itself and has held
    /// the lock for some seconds: see [`ProcessInfo::routes`]. It is serialized unless it is `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
}

impl Holder {
    /// A holder that has entered once.
    pub fn new(id: impl Into<String>, mode: LockMode, remaining: Duration) -> Self {
        Self {
            id: id.into(),
            mode,
            count: 1,
            remaining,
            process: None,
            route: None,
        }
    }

    /// Sets [`count`](Self::count).
    #[must_use]
    pub fn count(self, count: u64) -> Self {
        Self { count, ..self }
    }

    /// Whether it is a client of this crate, by the version of its id. Others are Redisson, or speak its protocol.
    pub fn is_ours(&self) -> bool {
        self.client().is_some()
    }

    /// The number of its grant, if it is a client of this crate.
    pub(crate) fn number(&self) -> Option<u64> {
        self.id.split(':').nth(1)?.parse().ok()
    }

    /// The id of its client, if it is a client of this crate: see [`LockClient::id`](crate::LockClient::id).
    pub fn client(&self) -> Option<Uuid> {
        HoldId::ours(&self.id)
    }
}

/// A duration in whole milliseconds; `null` if it never ends.
pub(super) fn millis<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    let millis = u64::try_from(duration.as_millis()).ok();
    millis.filter(|_| *duration != Duration::MAX).serialize(to)
}
