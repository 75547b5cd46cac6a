//! Where holds live.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::audit::{Audit, Deployment};
use crate::error::{StoreError, StoreErrorKind};
use crate::lock::{FencingToken, Hold, LockKey, LockMode};

mod inspect;
mod many;
pub mod memory;
pub mod quorum;
#[cfg(feature = "redis")]
pub mod redis;

pub(crate) use inspect::SHOWN;
pub use inspect::{Holder, Inspect, Inspection};
pub use many::{AllOutcome, AnyOutcome};

/// How long a waiter that has stopped asking still counts as waiting.
///
/// A live waiter asks again at least every second, so this forgives two lost or late questions; a dead one delays others
/// by no more than this.
pub const WAITER_LIVENESS: Duration = Duration::from_secs(3);

/// How many holds one question names: few enough to keep a single-threaded server responsive.
pub(crate) const BATCH: usize = 100;

/// How long an attempt that went unanswered may still arrive; as long at least is its withdrawal remembered.
///
/// A copy can be late for as long as its connection may still deliver it: one that does not answer is closed within two
/// response timeouts, and the operating system goes on trying to deliver for about 100 seconds.
pub(crate) const LATENESS: Duration = Duration::from_secs(120);

/// One try to get one hold.
///
/// The client makes the hold id before it sends the first byte, so that whatever becomes of the attempt can be undone by
/// name. The same attempt may be made many times while its owner waits.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// The hold that is asked for.
    pub hold: Hold,
    /// How long it shall live without renewal.
    pub lease: Duration,
    /// How long the caller is willing to wait; `None` if it will not ask again. Only attempts with patience are
    /// remembered as waiters.
    pub patience: Option<Duration>,
    /// Whether the grant shall carry a fencing token.
    pub fencing: Option<Fencing>,
}

/// What a caller wants of its fencing tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fencing {
    /// How long the key's token counter is kept after its last use; `None`, which Redisson does, keeps it for ever.
    pub retention: Option<Duration>,
    /// How many more tokens, following the one granted, are reserved for passing the hold on inside the process.
    pub reserve: u32,
}

/// What the store answers to an [`Attempt`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The hold is the caller's, for one lease from now.
    Granted {
        /// The first of the tokens asked for by [`Attempt::fencing`].
        token: Option<FencingToken>,
    },
    /// Others go first.
    Refused {
        /// When asking again may succeed without a wake-up: the rest of the present holder's lease, or of whatever else
        /// stands in the way.
        retry_after: Duration,
    },
}

/// Whether the store carries a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldStatus {
    /// The store carries the hold. After a release: it carried the hold until now.
    Held,
    /// The store does not carry the hold: the hold lapsed, was removed, or never was.
    Gone,
    /// The store answered, but cannot say it of this hold: of the stores of a quorum that carry the hold, too few
    /// answered. The client keeps the hold's deadline as it is and asks again.
    Unknown,
}

/// What the store answers to a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Released {
    /// Whether the store carried the hold until now.
    pub standing: HoldStatus,
    /// How many [`Wakeups`] the end of a `Reentrant` or `Write` hold has woken: an estimate, which may count a process of
    /// many as one, and 0 where the store cannot tell. Whoever gave up a lock that it wants again looks here whether to
    /// let others go first.
    pub listeners: usize,
}

impl From<HoldStatus> for Released {
    /// A release of a store that cannot tell who listens.
    fn from(standing: HoldStatus) -> Self {
        Self {
            standing,
            listeners: 0,
        }
    }
}

/// A hold whose lease is to begin anew.
#[derive(Debug, Clone)]
pub struct Renewal {
    /// The hold.
    pub hold: Hold,
    /// How long it shall live from now.
    pub lease: Duration,
}

/// What a finished piece of work leaves under its key, such as the response to an idempotent request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The work's result, opaque to the store.
    pub value: Bytes,
    /// How long it is remembered.
    pub retention: Duration,
}

fn no_records() -> StoreError {
    StoreError::new(
        StoreErrorKind::Refused,
        "this store keeps no records: use MemoryStore or RedisStore for idempotency",
    )
}

/// The refusal to record under a hold that others share: their work is not what the record says.
fn shared_work() -> StoreError {
    StoreError::new(
        StoreErrorKind::Refused,
        "a read hold leaves no record: others may hold the key at the same time",
    )
}

/// Where holds live: one process's memory, a Redis server, a majority of several.
///
/// # Contract
///
/// 1. **Exclusion.** Live holds on one key satisfy their modes' rule: any number of `Read`, or exactly one of anything
///    else. One exception: a `Read` attempt with the id of the live `Write` hold is granted (the writer may read). When
///    that writer releases, its read stays, and other readers may enter.
/// 2. **Leases.** A granted or renewed hold lives for its lease by the store's own clock, then it is gone. Each reader
///    lapses on its own. A renewal never shortens a life: one that arrives late must not undo what was promised since. A
///    shared expiry is never shortened below what another live hold was promised: a `Write` hold whose owner also reads
///    lives at least as long as that read.
/// 3. **Only `acquire` creates.** `renew`, `check`, `release` and `withdraw` never create a hold, and touch no other than
///    the one they name.
/// 4. **Acquiring twice is acquiring once.** An attempt that is made again while its hold lives is granted again. An id
///    stands for one mode of a key; only a `Write` hold's may also be used to `Read`.
/// 5. **Withdrawn is final.** Once `withdraw` has answered, the attempt's hold is gone from the store, and so are its
///    entries as a waiter. If the attempt went unanswered, even a copy of it that arrives later is not granted, but fails
///    with [`StoreErrorKind::Refused`], for as long as a copy can be late.
/// 6. **Fair queue.** `Fair` attempts with patience queue in the order of their first ask and are granted in that order.
///    One that does not ask for [`WAITER_LIVENESS`] loses its place. A `Fair` attempt without patience never queues, and
///    is refused while others do.
/// 7. **Phases.** While a `Write` attempt with patience waits, new `Read` attempts are refused. When a `Write` hold is
///    released, the `Read` attempts that wait at that moment go first: until each has entered or withdrawn or stopped
///    asking, `Write` attempts are refused. Neither side can starve the other.
/// 8. **Wake-ups.** Whatever may turn a waiter's refusal into a grant, expiry excepted, wakes the [`Wakeups`] of the
///    waiters it concerns: a release, a withdrawal, a forced unlock; in a fair queue that of the next in line. The end of
///    a `Reentrant` hold need not wake `Fair` waiters, nor that of a `Fair` hold the `Reentrant` ones while others are in
///    line, as with Redisson: whoever mixes them on one key relies on asking again. A wake-up may come in vain. What wakes
///    an attempt wakes every attempt of its key and mode, `Fair` ones excepted, so that whoever listens for one may go on
///    listening for the next.
/// 9. **Families.** An attempt on a key that holds another [family](crate::lock::LockFamily), or something that is no
///    lock, fails with [`StoreErrorKind::Conflict`].
///
/// # Errors
///
/// Every method may fail with a [`StoreError`]; its kind says whether the operation may have had an effect.
///
/// # Cancel safety
///
/// The client drives every future of a store to its end. An implementation need not be cancel safe.
pub trait LockStore: Send + Sync + 'static {
    /// Asks for a hold.
    fn acquire(
        &self,
        attempt: &Attempt,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + Send;

    /// Begins the leases of several holds anew; answers for each, in order. A hold of which the store cannot say whether
    /// it is renewed is [`HoldStatus::Unknown`] and does not fail the others.
    fn renew(
        &self,
        renewals: &[Renewal],
    ) -> impl Future<Output = Result<Vec<HoldStatus>, StoreError>> + Send;

    /// Asks which of several holds the store carries; answers for each, in order. A hold of which the store cannot say is
    /// [`HoldStatus::Unknown`] and does not fail the others.
    fn check(
        &self,
        holds: &[Hold],
    ) -> impl Future<Output = Result<Vec<HoldStatus>, StoreError>> + Send;

    /// Ends a hold, and says whether there was one.
    fn release(&self, hold: &Hold) -> impl Future<Output = Result<Released, StoreError>> + Send;

    /// Takes back whatever an attempt has left: its hold, its entries as a waiter. If it went `unanswered`, a copy of it
    /// may still arrive, and must find that it was withdrawn.
    fn withdraw(
        &self,
        attempt: &Attempt,
        unanswered: bool,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Listens for whatever may turn the attempt's refusal into a grant. When this answers, listening has begun.
    fn subscribe(
        &self,
        attempt: &Attempt,
    ) -> impl Future<Output = Result<Wakeups, StoreError>> + Send;

    /// Asks for several holds on different keys: all of them or none. The attempts have no patience.
    ///
    /// The default asks one by one and gives back what it got when one is refused. After an error, any of them may be
    /// held: the caller withdraws all.
    fn acquire_all(
        &self,
        attempts: &[Attempt],
    ) -> impl Future<Output = Result<AllOutcome, StoreError>> + Send {
        many::all(self, attempts)
    }

    /// Asks for one of several holds on different keys: the first in order that is free. The attempts have no patience.
    ///
    /// The default asks one by one. After an error, any of them may be held: the caller withdraws all.
    fn acquire_any(
        &self,
        attempts: &[Attempt],
    ) -> impl Future<Output = Result<AnyOutcome, StoreError>> + Send {
        many::any(self, attempts)
    }

    /// Ends a hold as [`release`](Self::release) does and, if there was one, remembers `record` under its key, in the same
    /// step: no other holder of the key can begin before the record is there. Records live apart from locks.
    ///
    /// # Errors
    ///
    /// A `Read` hold is refused, and stays. The default keeps no records, and refuses.
    fn release_recording(
        &self,
        hold: &Hold,
        record: &Record,
    ) -> impl Future<Output = Result<Released, StoreError>> + Send {
        let _ = (hold, record);
        async { Err(no_records()) }
    }

    /// What is remembered under `key`, while its retention lasts.
    ///
    /// # Errors
    ///
    /// The default keeps no records, and refuses.
    fn record(
        &self,
        key: &LockKey,
    ) -> impl Future<Output = Result<Option<Bytes>, StoreError>> + Send {
        let _ = key;
        async { Err(no_records()) }
    }

    /// Looks at the deployment: which promises hold on it, and what weakens them. It takes no lock and changes nothing.
    ///
    /// The default says nothing of itself.
    fn audit(&self) -> impl Future<Output = Result<Audit, StoreError>> + Send {
        async { Ok(Audit::new(Deployment::Unknown)) }
    }

    /// Whether [`release_recording`](Self::release_recording) and [`record`](Self::record) are there.
    fn keeps_records(&self) -> bool {
        false
    }

    /// Which part of the store a key lives in. Each part can fail without the others, so holds of different parts are
    /// renewed and checked by different calls.
    fn part(&self, key: &LockKey) -> u16 {
        let _ = key;
        0
    }

    /// Says, before anything is sent, whether the store can hold such a key; the text of a refusal is for the caller's
    /// eyes.
    fn accepts(&self, key: &LockKey) -> Result<(), &'static str> {
        let _ = key;
        Ok(())
    }

    /// Says, before anything is sent, whether the store can serve such attempts; the text of a refusal is for the
    /// caller's eyes.
    fn supports(&self, mode: LockMode, fenced: bool) -> Result<(), &'static str> {
        let _ = (mode, fenced);
        Ok(())
    }

    /// The runtime on which clients renew their holds, for a store that has one of its own; `None`, the default: on that of
    /// their callers.
    ///
    /// A client asks when it first has something to renew. [`renew`](Self::renew) is then called on that runtime, even
    /// while all workers of the callers' runtime are busy, and must not need those to answer. The runtime must live, and be
    /// driven, for as long as the store does.
    fn renewal_runtime(&self) -> Option<Handle> {
        None
    }
}

/// Notices that a refused attempt may succeed now. Dropping it ends the subscription.
///
/// A wake-up that comes between two calls of [`Wakeups::wait`] is kept; several are one.
#[derive(Debug)]
pub struct Wakeups {
    signal: watch::Receiver<()>,
    _subscription: Option<Subscription>,
}

struct Subscription(#[allow(dead_code)] Box<dyn Send + Sync>);

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Subscription")
    }
}

impl Wakeups {
    /// Wakes whenever `signal` is sent. `subscription` is dropped with the wake-ups: its `Drop` must not block.
    pub fn new(signal: watch::Receiver<()>, subscription: impl Send + Sync + 'static) -> Self {
        Self {
            signal,
            _subscription: Some(Subscription(Box::new(subscription))),
        }
    }

    /// Waits for the next wake-up; for ever if none can come any more.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a wake-up is consumed only by returning.
    pub async fn wait(&mut self) {
        if self.signal.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// A store's answer to come.
pub(crate) type Answer<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

/// [`LockStore`] without its type: futures that own what they need, so that a cancelled caller can hand them on.
pub(crate) trait DynStore: Send + Sync {
    fn acquire(self: Arc<Self>, attempt: Attempt) -> Answer<Outcome>;
    fn acquire_all(self: Arc<Self>, attempts: Arc<[Attempt]>) -> Answer<AllOutcome>;
    fn acquire_any(self: Arc<Self>, attempts: Arc<[Attempt]>) -> Answer<AnyOutcome>;
    fn renew(self: Arc<Self>, renewals: Vec<Renewal>) -> Answer<Vec<HoldStatus>>;
    fn check(self: Arc<Self>, holds: Vec<Hold>) -> Answer<Vec<HoldStatus>>;
    fn release(self: Arc<Self>, hold: Hold) -> Answer<Released>;
    fn release_recording(self: Arc<Self>, hold: Hold, record: Record) -> Answer<Released>;
    fn record(self: Arc<Self>, key: LockKey) -> Answer<Option<Bytes>>;
    fn withdraw(self: Arc<Self>, attempt: Attempt, unanswered: bool) -> Answer<()>;
    fn subscribe(self: Arc<Self>, attempt: Attempt) -> Answer<Wakeups>;
    fn audit(self: Arc<Self>) -> Answer<Audit>;
    fn keeps_records(&self) -> bool;
    fn part(&self, key: &LockKey) -> u16;
    fn accepts(&self, key: &LockKey) -> Result<(), &'static str>;
    fn supports(&self, mode: LockMode, fenced: bool) -> Result<(), &'static str>;
    fn renewal_runtime(&self) -> Option<Handle>;
}

/// The answers of a store, if there is one for each question.
fn one_for_each<T>(answers: Vec<T>, questions: usize) -> Result<Vec<T>, StoreError> {
    match answers.len() == questions {
        true => Ok(answers),
        false => Err(wrong_size(answers.len(), questions)),
    }
}

/// The store may have done what it was asked for: its answer does not say.
fn wrong_size(answers: usize, questions: usize) -> StoreError {
    StoreError::new(
        StoreErrorKind::Unanswered,
        format!("the store answered {answers} to {questions} questions"),
    )
}

impl<S: LockStore> DynStore for S {
    fn acquire(self: Arc<Self>, attempt: Attempt) -> Answer<Outcome> {
        Box::pin(async move { LockStore::acquire(&*self, &attempt).await })
    }

    fn acquire_all(self: Arc<Self>, attempts: Arc<[Attempt]>) -> Answer<AllOutcome> {
        Box::pin(async move {
            match LockStore::acquire_all(&*self, &attempts).await? {
                AllOutcome::Granted(tokens) => {
                    one_for_each(tokens, attempts.len()).map(AllOutcome::Granted)
                }
                refused => Ok(refused),
            }
        })
    }

    fn acquire_any(self: Arc<Self>, attempts: Arc<[Attempt]>) -> Answer<AnyOutcome> {
        Box::pin(async move {
            match LockStore::acquire_any(&*self, &attempts).await? {
                AnyOutcome::Granted { index, .. } if index >= attempts.len() => {
                    Err(wrong_size(index, attempts.len()))
                }
                outcome => Ok(outcome),
            }
        })
    }

    fn renew(self: Arc<Self>, renewals: Vec<Renewal>) -> Answer<Vec<HoldStatus>> {
        Box::pin(async move {
            let answers = LockStore::renew(&*self, &renewals).await?;
            one_for_each(answers, renewals.len())
        })
    }

    fn check(self: Arc<Self>, holds: Vec<Hold>) -> Answer<Vec<HoldStatus>> {
        Box::pin(async move {
            let answers = LockStore::check(&*self, &holds).await?;
            one_for_each(answers, holds.len())
        })
    }

    fn release(self: Arc<Self>, hold: Hold) -> Answer<Released> {
        Box::pin(async move { LockStore::release(&*self, &hold).await })
    }

    fn release_recording(self: Arc<Self>, hold: Hold, record: Record) -> Answer<Released> {
        Box::pin(async move { LockStore::release_recording(&*self, &hold, &record).await })
    }

    fn record(self: Arc<Self>, key: LockKey) -> Answer<Option<Bytes>> {
        Box::pin(async move { LockStore::record(&*self, &key).await })
    }

    fn withdraw(self: Arc<Self>, attempt: Attempt, unanswered: bool) -> Answer<()> {
        Box::pin(async move { LockStore::withdraw(&*self, &attempt, unanswered).await })
    }

    fn subscribe(self: Arc<Self>, attempt: Attempt) -> Answer<Wakeups> {
        Box::pin(async move { LockStore::subscribe(&*self, &attempt).await })
    }

    fn audit(self: Arc<Self>) -> Answer<Audit> {
        Box::pin(async move { LockStore::audit(&*self).await })
    }

    fn keeps_records(&self) -> bool {
        LockStore::keeps_records(self)
    }

    fn part(&self, key: &LockKey) -> u16 {
        LockStore::part(self, key)
    }

    fn accepts(&self, key: &LockKey) -> Result<(), &'static str> {
        LockStore::accepts(self, key)
    }

    fn supports(&self, mode: LockMode, fenced: bool) -> Result<(), &'static str> {
        LockStore::supports(self, mode, fenced)
    }

    fn renewal_runtime(&self) -> Option<Handle> {
        LockStore::renewal_runtime(self)
    }
}
