//! The permits of one key.

use std::num::NonZeroU32;

use tokio::time::Instant;

use super::expiring_list::ExpiringList;
#[cfg(test)]
use crate::exploration::{self, Mutant};
use crate::lock::{HoldId, LockMode};

/// The holders of permits, and their limit.
///
/// While `limit` is `None`, there is no hold, and the next attempt names the limit.
#[derive(Debug, Default)]
pub(super) struct Permits {
    pub(super) holds: ExpiringList,
    limit: Option<Limit>,
}

#[derive(Debug, Clone, Copy)]
struct Limit {
    permits: NonZeroU32,
    /// The limit was set for the key, and not named by an attempt. It counts for every attempt, whatever
    /// limit the attempt names.
    is_set: bool,
}

impl Permits {
    /// Removes expired holds, and the limit that their attempts named if none is left.
    pub(super) fn expire(&mut self, now: Instant) {
        #[cfg(test)]
        if exploration::has(Mutant::ExpiredPermitCounts) {
            return;
        }
        self.holds.expire(now);
        self.settle();
    }

    /// Whether no entry is left that could change an answer.
    pub(super) fn is_idle(&self) -> bool {
        self.limit.is_none()
    }

    pub(super) fn is_free(&self) -> bool {
        self.holds.is_empty()
    }

    /// The limit that counts now.
    pub(super) fn limit(&self) -> Option<NonZeroU32> {
        self.limit.map(|limit| limit.permits)
    }

    /// The current limit, if it differs from `asked`.
    pub(super) fn contradicts(&self, asked: NonZeroU32) -> Option<NonZeroU32> {
        let other = |limit: &Limit| !limit.is_set && limit.permits != asked;
        self.limit.filter(other).map(|limit| limit.permits)
    }

    /// How many permits are free: a negative number if more are held than a lowered limit allows, 0 if no limit counts.
    pub(super) fn free(&self) -> i64 {
        let held = i64::try_from(self.holds.iter().count()).unwrap_or(i64::MAX);
        self.limit()
            .map_or(0, |limit| i64::from(limit.get()) - held)
    }

    /// When the next permit expires; `None` if one is free.
    pub(super) fn next_free(&self, asked: NonZeroU32) -> Option<Instant> {
        let limit = self.limit().unwrap_or(asked).get() as usize;
        #[cfg(test)]
        let limit = limit + usize::from(exploration::has(Mutant::OnePermitMore));
        let mut ends: Vec<_> = self.holds.iter().map(|(_, until)| until).collect();
        // More are held than there are permits after a limit was lowered.
        let lacking = ends.len().checked_sub(limit)?;
        ends.sort_unstable();
        Some(ends[lacking])
    }

    /// Sets the limit, or leaves it to attempts.
    pub(super) fn set(&mut self, limit: Option<NonZeroU32>) {
        match limit {
            Some(permits) => {
                self.limit = Some(Limit {
                    permits,
                    is_set: true,
                });
            }
            None => {
                if let Some(limit) = &mut self.limit {
                    limit.is_set = false;
                }
                self.settle();
            }
        }
    }

    /// Sets the end of the hold.
    pub(super) fn put(&mut self, id: HoldId, asked: NonZeroU32, until: Instant) {
        self.limit.get_or_insert(Limit {
            permits: asked,
            is_set: false,
        });
        self.holds.put(id, until);
    }

    /// Ends a hold. Returns whether there was one.
    pub(super) fn remove(&mut self, id: HoldId) -> bool {
        let held = self.holds.remove(id);
        self.settle();
        held
    }

    /// Ends every hold. Returns whether there was any.
    pub(super) fn clear(&mut self) -> bool {
        let held = !std::mem::take(&mut self.holds).is_empty();
        self.settle();
        held
    }

    /// The mode of a hold.
    pub(super) fn mode(&self) -> LockMode {
        LockMode::Permit(self.limit().unwrap_or(NonZeroU32::MIN))
    }

    fn settle(&mut self) {
        if self.holds.is_empty() {
            self.limit.take_if(|limit| !limit.is_set);
        }
    }
}
