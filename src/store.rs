//! The contract of stores, which keep the holds.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use crate::audit::{Audit, Deployment};
use crate::error::{StoreError, StoreErrorKind};
use crate::lock::{Hold, LockKey};

mod answer;
mod capabilities;
mod erased;
mod erased_inspect;
mod ext;
mod inspect;
mod inspection;
mod listing;
pub mod memory;
mod process;
mod question;
#[cfg(feature = "redis")]
pub mod redis;
mod several;
mod wakeups;

// Those of `error`: a store answers with them.
pub use crate::error::{Feature, Unsupported};
pub(crate) use answer::Reply;
pub use answer::{Grant, HoldStatus, Outcome, Released, SeveralOutcome};
pub use capabilities::Capabilities;
pub(crate) use erased::{Answer, Asked, Store};
pub(crate) use erased_inspect::{DynInspect, inspector};
pub use ext::LockStoreExt;
pub use inspect::Inspect;
pub(crate) use inspection::SHOWN;
pub use inspection::{Holder, Inspection};
pub use listing::{ListQuery, LockEntry, Page, RecordEntry};
pub(crate) use process::MAX_ROUTES;
pub use process::ProcessInfo;
pub use question::{Attempt, Fencing, Record, Renewal, Want};
pub use wakeups::Wakeups;

/// How long a waiter counts as waiting after its last question.
///
/// A live waiter asks again at least every second, so two questions may be lost or late; a dead waiter delays others by at most
/// this.
pub const WAITER_LIVENESS: Duration = Duration::from_secs(3);

/// How many holds one question names. The limit keeps a single-threaded server responsive.
pub(crate) const BATCH: usize = 100;

/// How long an unanswered attempt may still arrive. A store remembers its withdrawal at least as long.
///
/// A copy can be late as long as its connection may still deliver it: a silent connection is closed within two response timeouts,
/// and the operating system tries to deliver for about 100 seconds more.
pub const LATENESS: Duration = Duration::from_secs(120);

/// Groups items, in their order.
fn grouped<T, G: Ord>(
    items: impl IntoIterator<Item = T>,
    group: impl Fn(&T) -> G,
) -> BTreeMap<G, Vec<T>> {
    let mut groups: BTreeMap<G, Vec<T>> = BTreeMap::new();
    for item in items {
        groups.entry(group(&item)).or_default().push(item);
    }
    groups
}

/// The error if the store answered, but could not decide about a hold.
pub(crate) fn undecided() -> StoreError {
    StoreError::new(
        StoreErrorKind::Unanswered,
        "the store cannot say whether it carries the hold",
    )
}

/// The refusal of a record under a shared hold: the record does not describe the work of the other shares.
fn shared_work() -> StoreError {
    StoreError::new(
        StoreErrorKind::Refused,
        "a read hold or a permit leaves no record: others may hold the key at the same time",
    )
}

/// Checks that only an exclusive hold leaves a record.
fn check_record(hold: &Hold, record: Option<&Record>) -> Result<(), StoreError> {
    match record {
        Some(_) if !hold.mode.is_exclusive() => Err(shared_work()),
        _ => Ok(()),
    }
}

/// The refusal of an attempt that names another limit of permits than counts for the key.
fn other_limit(limit: u32) -> StoreError {
    StoreError::new(
        StoreErrorKind::Conflict,
        format!(
            "the key has {limit} permits, and the attempt names another limit: name the same limit everywhere, or set one \
             for the key by `LockAdmin::set_permits`"
        ),
    )
}

/// A store of holds: the memory of a process, a Redis server, a majority of several.
///
/// # Contract
///
/// 1. **Exclusion.** Live holds on one key satisfy their modes' rule: any number of `Read` holds, permits up to their limit, or
///    exactly one hold of another mode.
/// 2. **Leases.** A granted or renewed hold lives for its lease by the store's own clock, then it is gone. Each reader expires
///    separately. A renewal never shortens a lease: a late renewal must not undo a later promise. A shared expiry is never
///    shortened below the promise to another live hold.
/// 3. **Only `acquire` creates.** `renew`, `release` and `withdraw` never create a hold, and change only the holds that they
///    name.
/// 4. **Acquiring twice is acquiring once.** An attempt that is made again while its hold lives is granted again. An id belongs
///    to one mode of a key. No client uses it in another mode, so what a store would answer is left open.
/// 5. **Withdrawn is final.** Once `withdraw` has answered, the store has neither the attempt's hold nor its entries as a waiter.
///    If the attempt went unanswered, a later copy of it, which asks for the same hold, is not granted either, but fails with
///    [`StoreErrorKind::Refused`], for as long as a copy can be late.
/// 6. **Fair queue.** `Fair` attempts with patience queue in the order of their first question and are granted in that order. An
///    attempt that does not ask for [`WAITER_LIVENESS`] loses its place, but a store may leave out a silence in which none asks:
///    its server may have stood still. A `Fair` attempt without patience never queues, and is refused while others do.
/// 7. **Phases.** While a `Write` attempt with patience waits, new `Read` attempts are refused. When a `Write` hold is released,
///    the `Read` attempts that wait at that moment go first: `Write` attempts are refused until each of these has been granted,
///    has been withdrawn or has stopped asking. So neither side can starve the other.
/// 8. **Wake-ups.** Every event except expiry that may turn a waiter's refusal into a grant wakes the [`Wakeups`] of that waiter:
///    a release, a withdrawal, a forced unlock; in a fair queue, and in line, that of the first. The end of a `Reentrant` hold
///    wakes the first in the fair queue, too. That of a `Fair` hold need not wake `Reentrant` ones while others are in the queue: a
///    client that mixes them on one key relies on polling. A wake-up may be needless. An event that wakes an attempt wakes every
///    attempt of its client, key and mode with the same [`in_line`](Attempt::in_line), except `Fair` ones, so that the listener
///    for one attempt can also serve the next.
/// 9. **Families.** An attempt on a key that holds another [family](crate::lock::LockFamily), or data that is not a lock, fails
///    with [`StoreErrorKind::Conflict`].
/// 10. **Line.** A store may have a line, and its releases say so: [`Released::in_line`]. Then `Reentrant`, `Write` and `Permit`
///     attempts with patience that are [`in_line`](Attempt::in_line) form it in the order of their first question, and are
///     granted in that order. An attempt that does not ask for [`WAITER_LIVENESS`] loses its place. An event that frees the key
///     wakes the first in line, and no other; so does a withdrawal that makes it the first, and a grant of a permit that leaves
///     another one free. Attempts without a place are granted when the key is free. If such an attempt is granted while others
///     wait in line, the store may refuse the next ones for milliseconds after the hold's release, so that the first in line is
///     granted. In a store without a line, no attempt has a place.
/// 11. **Permits.** While permits of a key are held, an attempt that names another limit fails with
///    [`StoreErrorKind::Conflict`]; when none is held, the next attempt's limit counts. A limit that was
///    [set](Inspect::set_permits) counts in place of what attempts name. An attempt that is not granted changes no limit. A store
///    may keep the name of a key for permits for a while after the last of them was released.
///
/// # Errors
///
/// Every method may fail with a [`StoreError`]; its kind says whether the operation may have had an effect. A question about
/// several holds fails as a whole, and then the state of all of them is unknown. A store that knows the state of some answers,
/// with [`HoldStatus::Unknown`] for the others. An answer has one entry for each entry of the question, in order; a client treats
/// an answer of another size as [`Unanswered`](StoreErrorKind::Unanswered).
///
/// # Cancel safety
///
/// The client drives every question to its end, even if its caller is dropped: the methods need not be cancel safe, and are dropped
/// early only with their runtime. A `subscribe` that is dropped with it leaves no subscription. A
/// [quorum](https://docs.rs/tower-distributed-lock-quorum) also drops an `audit`, and a question of [`Inspect`] that changes
/// nothing, if they take too long.
///
/// # A whole store
///
/// `Reentrant` locks in a table, with everything that the contract requires. The conformance suite of this crate runs on it.
///
#[doc = concat!("```\n", include_str!("../docs/worked_store.rs"), "```")]
///
/// # How a store proves itself
///
/// The crate [`tower-distributed-lock-testing`](https://docs.rs/tower-distributed-lock-testing) has the suite that the stores of
/// this crate pass. One macro call makes a test of each case in each mode:
///
/// ```text
/// tower_distributed_lock_testing::conformance!(MyTestbed: reentrant fair read write, fenced);
/// ```
///
/// Its module `conformance` describes `Testbed`.
pub trait LockStore: Send + Sync + 'static {
    /// Asks for a hold.
    fn acquire(
        &self,
        attempt: &Attempt,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + Send;

    /// Renews the leases of several holds, or asks which of them the store carries. Answers for each.
    ///
    /// An empty batch asks only whether the store answers: for [`LockClient::ping`](crate::LockClient::ping).
    fn renew(
        &self,
        renewals: &[Renewal],
    ) -> impl Future<Output = Result<Vec<HoldStatus>, StoreError>> + Send;

    /// Releases a hold, and answers whether the store carried it. If it did and leaves a [`Record`], the store keeps the record
    /// under the hold's key in the same step: no other holder of the key can begin before the record exists. Records are separate
    /// from locks.
    ///
    /// # Errors
    ///
    /// [`Conflict`](StoreErrorKind::Conflict) if the hold has ended and its key also has data that is not a hold, which was kept.
    ///
    /// A `Read` hold or a permit that leaves a record is refused, and is not released. Clients leave records only in a store
    /// whose [`capabilities`](Self::capabilities) have them.
    fn release(
        &self,
        hold: &Hold,
        record: Option<&Record>,
    ) -> impl Future<Output = Result<Released, StoreError>> + Send;

    /// Withdraws an attempt: its hold, its entries as a waiter. If it went `unanswered`, a copy of it may still arrive, and must
    /// be refused as withdrawn.
    fn withdraw(
        &self,
        attempt: &Attempt,
        unanswered: bool,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Subscribes to the events that may turn the attempt's refusal into a grant. When this returns, the subscription is active.
    /// It may end before its listener: see [`Wakeups`].
    fn subscribe(
        &self,
        attempt: &Attempt,
    ) -> impl Future<Output = Result<Wakeups, StoreError>> + Send;

    /// What the store supports. Clients use nothing else.
    fn capabilities(&self) -> Capabilities;

    /// Asks for several holds on different keys: all or none of them, or the first free one. The attempts have no patience.
    ///
    /// The default asks one by one. If all are wanted and one is refused, it releases the others. After an error, any of them may
    /// be held: the caller withdraws all.
    fn acquire_several(
        &self,
        attempts: &[Attempt],
        want: Want,
    ) -> impl Future<Output = Result<SeveralOutcome, StoreError>> + Send {
        several::one_by_one(self, attempts, want)
    }

    /// The record under `key`, during its retention.
    ///
    /// # Errors
    ///
    /// The default keeps no records, and refuses.
    fn record(
        &self,
        key: &LockKey,
    ) -> impl Future<Output = Result<Option<Bytes>, StoreError>> + Send {
        let _ = key;
        async { Err(inspect::missing(Feature::Records)) }
    }

    /// Audits the deployment: which promises hold on it, and what weakens them. It takes no lock and changes nothing.
    ///
    /// The default returns an audit of an unknown deployment.
    fn audit(&self) -> impl Future<Output = Result<Audit, StoreError>> + Send {
        async { Ok(Audit::new(Deployment::Unknown)) }
    }

    /// The partition of a key. Each partition can fail without the others, so a client renews, checks and releases holds of
    /// different partitions by different calls. The default has one partition.
    ///
    /// # Errors
    ///
    /// [`Unsupported`] if the store does not accept such a key. A client calls this before it sends anything.
    fn partition(&self, key: &LockKey) -> Result<u16, Unsupported> {
        let _ = key;
        Ok(0)
    }
}
