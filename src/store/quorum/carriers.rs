//! Which stores speak for a hold.

use super::members::Members;
use crate::store::HoldStatus;

/// The stores that carry a hold, as far as their answers to its attempt tell.
///
/// Whether a hold was held *all the time* is a question to those that granted it before the attempt was answered. Without
/// this distinction a store could speak for a time when it carried another holder's hold: the first ones come back empty,
/// another client takes the lock and gives it back, and only then a late grant arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Carriers {
    /// Those that granted before the attempt was answered, and those that followed without a gap.
    pub(super) counted: Members,
    /// Those that granted later.
    pub(super) late: Members,
}

impl Carriers {
    /// Whether a majority has carried the hold all the time, given those that say so now and those that deny it; `None`
    /// if that depends on the others.
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

    /// Whether the lease of a hold began anew in a majority; late stores count as well. A hold that cannot be confirmed any
    /// more is gone, so that its holder hears of it now and not at the end.
    pub(super) fn renewed(
        self,
        majority: usize,
        held: Members,
        gone: Members,
    ) -> Option<HoldStatus> {
        match self.unbroken(majority, held, gone) {
            None if held.len() >= majority => Some(HoldStatus::Held),
            standing => standing,
        }
    }

    /// Counts those stores that were `late` when a question was sent that proved the hold unbroken until then.
    pub(super) fn follow(&mut self, late: Members) {
        let followed = self.late.and(late);
        self.counted = self.counted.or(followed);
        self.late = self.late.without(followed);
    }
}
