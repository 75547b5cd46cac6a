//! Counts of calls and faults.

use std::fmt;

use super::Fault;

/// The number of calls, and of each fault.
///
/// A fault counts when it takes effect: a late request when it is executed, a vanished hold if it existed. A test that
/// relies on a fault should assert that it occurred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    pub(super) calls: u64,
    pub(super) unreachable: u64,
    faults: [u64; Fault::ALL.len()],
}

impl Tally {
    /// The number of calls of the store, with and without faults.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// The number of calls that failed because the connection was down.
    pub fn unreachable(&self) -> u64 {
        self.unreachable
    }

    /// How often `fault` occurred.
    pub fn of(&self, fault: Fault) -> u64 {
        self.faults[fault as usize]
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.calls += other.calls;
        self.unreachable += other.unreachable;
        for (mine, theirs) in self.faults.iter_mut().zip(other.faults) {
            *mine += theirs;
        }
        self
    }

    pub(super) fn hit(&mut self, fault: Fault) {
        self.faults[fault as usize] += 1;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} calls, {} unreachable", self.calls, self.unreachable)?;
        Fault::ALL
            .iter()
            .filter(|fault| self.of(**fault) > 0)
            .try_for_each(|fault| write!(f, ", {} {fault:?}", self.of(*fault)))
    }
}
