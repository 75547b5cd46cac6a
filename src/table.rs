//! Who holds, who waits and who asks in this process: a state machine for each key.
//!
//! It is pure: an event comes in with its time, and an [`Out`] comes back, which the caller executes after the mutex is unlocked.
//! It calls no store, reads no clock, and nothing in it acts when it is dropped.
//!
//! The events are methods of [`KeyAt`]:
//!
//! | event | |
//! |---|---|
//! | [`enter`](KeyAt::enter) | a request comes: it shares a hold, asks the store, or waits with a ticket |
//! | [`granted`](KeyAt::granted), [`given`](KeyAt::given) | the store has granted a hold to the request that asked, or to those that wait |
//! | [`refused`](KeyAt::refused) | the request that asked waits now |
//! | [`left`](KeyAt::left) | a request that asked or waits is over |
//! | [`ended`](KeyAt::ended), [`released`](KeyAt::released) | the share of a hold ends: the hold goes on, passes to the next request, or is released |
//! | [`lost`](KeyAt::lost) | a hold is lost |
//! | [`next`](KeyAt::next) | what the task of a contended key does next |

mod key;
mod line;
mod new_share;
mod out;
mod shards;
mod shared;
mod slot;
mod snapshot;
mod terms;
#[cfg(test)]
mod tests;
mod wheel;

pub(crate) use key::{Entered, Key, KeyAt};
pub(crate) use line::{Next, Side, Task};
pub(crate) use new_share::NewShare;
pub(crate) use out::{Others, Out, ShareEnd};
use shards::TableShard;
pub(crate) use slot::{Slot, Taken};
pub use snapshot::{HoldSnapshot, KeySnapshot, WaiterSnapshot};
pub(crate) use terms::{HandoverLimits, Terms};

/// The number of shards, each with a mutex of its own. One in an exploration, where each mutex is a point at which others run.
pub(crate) const SHARDS: usize = if cfg!(shuttle) { 1 } else { 16 };

/// The table of a client.
pub(crate) struct Table {
    shards: [TableShard; SHARDS],
    pub(crate) limits: HandoverLimits,
    max_keys: usize,
    /// Whether a release is an event of its own: a store answers it later, and a request that asks before is refused.
    releases_later: bool,
}

impl Table {
    pub(crate) fn new(limits: HandoverLimits, max_keys: usize, releases_later: bool) -> Self {
        Self {
            shards: Default::default(),
            limits,
            max_keys,
            releases_later,
        }
    }
}
