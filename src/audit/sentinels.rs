//! The state of a master's sentinels.

use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

/// The state of a master's sentinels, from their answers. Where the answers differ, the value is the one that makes a
/// failover hardest, except that one sentinel is enough to begin a failover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Sentinels {
    /// How many sentinels the store is configured with.
    pub listed: usize,
    /// How many of these answer.
    pub answering: usize,
    /// How many sentinels there are, by their own count. It includes sentinels that are down for ever, until `SENTINEL
    /// RESET`.
    pub known: usize,
    /// How many must agree that the master is down. To replace it, a majority of all must also agree.
    pub quorum: usize,
    /// How many sentinels the best-connected one reaches; `None` if the user may not ask.
    pub reachable: Option<usize>,
    /// Whether these are enough to replace the master (`SENTINEL CKQUORUM`); `None` if the user may not ask.
    pub can_fail_over: Option<bool>,
    /// How long a master must be silent before a sentinel considers it down. A failover takes longer than that.
    #[serde(rename = "down_after_ms", serialize_with = "millis")]
    pub down_after: Duration,
}

fn millis<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

impl Sentinels {
    /// The shortest lease that can outlive a failover. Holds are renewed after a third of the lease, so at least two
    /// thirds are left. The failover itself takes some seconds more.
    pub fn lease_that_outlives_failover(&self) -> Duration {
        self.down_after * 3 / 2
    }
}

impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} answer, ", self.answering, self.listed)?;
        write!(f, "{} known, quorum {}", self.known, self.quorum)?;
        f.write_str(match self.can_fail_over {
            Some(true) => " reachable",
            Some(false) => " not reachable",
            None => "",
        })?;
        write!(f, ", down after {:?}", self.down_after)
    }
}
