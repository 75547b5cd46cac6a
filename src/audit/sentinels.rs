//! What sentinels say of a master.

use std::fmt;
use std::time::Duration;

/// What the sentinels of a master say of themselves. Where they differ, it is what makes a failover hardest; but one of
/// them is enough to begin one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sentinels {
    /// How many the store was told of.
    pub listed: usize,
    /// How many of these answer.
    pub answering: usize,
    /// How many there are, as they themselves say; those that are down for good are among them until `SENTINEL RESET`.
    pub known: usize,
    /// How many must agree that the master is down. To replace it, a majority of all must agree besides.
    pub quorum: usize,
    /// How many of all can be reached by the sentinel that reaches most; `None` if none of them lets itself be asked.
    pub reachable: Option<usize>,
    /// Whether these are enough to replace the master (`SENTINEL CKQUORUM`); `None` if none of them lets itself be asked.
    pub can_fail_over: Option<bool>,
    /// For how long a master does not answer until it is taken to be down. A failover takes longer than that.
    pub down_after: Duration,
}

impl Sentinels {
    /// The shortest lease of which a holder can expect that it outlives a failover: holds are renewed after a third of it,
    /// so that two thirds are left at least. The failover itself takes some seconds more.
    pub fn lease_that_outlives_failover(&self) -> Duration {
        self.down_after * 3 / 2
    }
}

impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            listed,
            answering,
            known,
            quorum,
            ..
        } = self;
        write!(
            f,
            "{answering} of {listed} answer, {known} known, quorum {quorum}"
        )?;
        f.write_str(match self.can_fail_over {
            Some(true) => " reachable",
            Some(false) => " not reachable",
            None => "",
        })?;
        write!(f, ", down after {:?}", self.down_after)
    }
}
