//! The stores whose answers count for a hold.

use super::members::Members;
use crate::store::HoldStatus;

/// The stores that granted a hold.
///
/// Only stores that granted before the attempt was answered can prove that a hold was held *all the time*. Otherwise a
/// store could count for a time when it carried another holder's hold: the first stores lose their data, another client
/// takes and releases the lock, and only then a late grant arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Carriers {
    /// Stores that granted before the attempt was answered, and late stores that a check has since proved to be without a
    /// gap.
    pub(super) counted: Members,
    /// Stores that granted later.
    pub(super) late: Members,
}

impl Carriers {
    /// Whether a majority has carried the hold all the time, given the stores that answer held and those that answer gone;
    /// `None` if that depends on the other stores.
    pub(super) fn unbroken(
        self,
        majority: usize,
        held: Members,
        gone: Members,
    ) -> Option<HoldStatus> {
        if self.counted.without(gone).len() < majority {
            return Some(HoldStatus::Gone);
        }
        (self.counted.and(held).len() >= majority).then_some(HoldStatus::Held)
    }

    /// Counts the stores that were `late` when a question was sent. The answers have proved the hold unbroken until then.
    pub(super) fn follow(&mut self, late: Members) {
        let followed = self.late.and(late);
        self.counted = self.counted.or(followed);
        self.late = self.late.without(followed);
    }
}
