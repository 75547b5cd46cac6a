//! The vocabulary of locking: modes, leases, owners, holds.

use std::fmt;
use std::mem;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Serialize, Serializer};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

mod key;
mod namespace;
mod resource;
mod resource_key;

pub use key::LockKey;
pub(crate) use key::{KeyMap, hex};
pub(crate) use namespace::Namespace;
pub use resource::Resource;
pub use resource_key::ResourceKey;

/// The rule about which holds on one key may coexist.
///
/// `Reentrant` and `Fair` exclude every other owner; `Read` and `Write` are the two sides of a read-write lock; `Permit`
/// admits so many holds at a time. An exclusive lock, a read-write lock and permits are different things in the store: use
/// one of them on a key. While one of them is held, the others are refused with
/// [`LockError::Conflict`](crate::LockError::Conflict). See [`Resource`]. The names are Redisson's. In
/// every mode, an [`Owner`] takes a key again that it holds.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let locks = tower_distributed_lock::LockClient::new(tower_distributed_lock::MemoryStore::new());
/// use tower_distributed_lock::LockMode;
///
/// let a = locks.lock("lock:prices").mode(LockMode::Read).await?;
/// let b = locks.lock("lock:prices").mode(LockMode::Read).await?; // readers share
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockMode {
    /// Excludes every other owner. Waiting processes get turns in the order in which they began to wait, and compete with
    /// clients of Redisson; on a quorum they compete with each other. Redisson's `RLock`.
    Reentrant,
    /// Excludes every other owner. Waiters are granted in the order in which they asked. Redisson's `RFairLock`.
    Fair,
    /// Excludes writers. The read side of Redisson's `RReadWriteLock`.
    Read,
    /// Excludes every other owner. Waiting processes get turns as with `Reentrant`. The write side of Redisson's
    /// `RReadWriteLock`.
    Write,
    /// At most so many holds at a time: see [`LockMode::permits`]. Redisson's `RPermitExpirableSemaphore`.
    Permit(NonZeroU32),
}

impl LockMode {
    /// At most `limit` holds on a key at a time, over all processes.
    ///
    /// Each hold has a lease of its own, and its end frees one permit. Every caller must pass the same limit: a different one fails
    /// with [`LockError::Conflict`](crate::LockError::Conflict) while any permit of the key is held; once all are released, the next
    /// caller's limit applies. So the limit is the program's decision, as in a [`Resource`], and never taken from a request: a client
    /// that chose it could make all other requests fail. `LockAdmin::set_permits` sets a limit that counts whatever callers pass.
    ///
    /// A permit has no fencing token and leaves no record: others hold the key at the same time. A [quorum] of stores
    /// does not offer it.
    ///
    /// [quorum]: https://docs.rs/tower-distributed-lock-quorum
    ///
    /// # Panics
    ///
    /// If `limit` is 0.
    pub const fn permits(limit: u32) -> Self {
        match NonZeroU32::new(limit) {
            Some(limit) => Self::Permit(limit),
            None => panic!("a limit of 0 permits lets no request through: choose at least 1"),
        }
    }

    /// Whether a hold in this mode excludes every other owner. `Read` and `Permit` do not, whatever the limit.
    pub fn is_exclusive(self) -> bool {
        match self {
            Self::Reentrant | Self::Fair | Self::Write => true,
            Self::Read | Self::Permit(_) => false,
        }
    }

    /// Whether it is a permit, whatever the limit.
    pub(crate) fn is_permit(self) -> bool {
        self.family() == LockFamily::Permits
    }

    /// Whether those who wait for it have places in the line of the store, if it has one.
    pub(crate) fn has_line(self) -> bool {
        match self {
            Self::Reentrant | Self::Write | Self::Permit(_) => true,
            Self::Fair | Self::Read => false,
        }
    }

    /// Whether a hold may pass to the next request of its process. One of them asks the store, and the others wait behind it.
    pub(crate) fn is_handed_over(self) -> bool {
        match self {
            Self::Reentrant | Self::Write => true,
            Self::Fair | Self::Read | Self::Permit(_) => false,
        }
    }

    /// Whether `other` is the same mode, whatever the limit of permits.
    pub(crate) fn is_like(self, other: Self) -> bool {
        mem::discriminant(&self) == mem::discriminant(&other)
    }

    /// The kind of lock that this mode belongs to. Modes of different families must not be used on one key.
    pub fn family(self) -> LockFamily {
        match self {
            Self::Reentrant | Self::Fair => LockFamily::Exclusive,
            Self::Read | Self::Write => LockFamily::ReadWrite,
            Self::Permit(_) => LockFamily::Permits,
        }
    }

    /// The mode's name in lower case, for labels and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reentrant => "reentrant",
            Self::Fair => "fair",
            Self::Read => "read",
            Self::Write => "write",
            Self::Permit(_) => "permit",
        }
    }
}

impl Serialize for LockMode {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

/// The kinds of lock. One key belongs to one of them. Like [`LockMode`], it can be matched exhaustively: a program says what it does
/// with each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockFamily {
    /// [`LockMode::Reentrant`] and [`LockMode::Fair`].
    Exclusive,
    /// [`LockMode::Read`] and [`LockMode::Write`].
    ReadWrite,
    /// [`LockMode::Permit`].
    Permits,
}

/// How long a hold lives without renewal.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let locks = tower_distributed_lock::LockClient::new(tower_distributed_lock::MemoryStore::new());
/// use std::time::Duration;
/// use tower_distributed_lock::Lease;
///
/// // The others wait 5 s at most when this process dies.
/// let guard = locks.lock("lock:job").lease(Lease::Renewed(Duration::from_secs(5))).await?;
/// // The lock ends after a minute, whatever this process does.
/// let short = locks.lock("lock:import").lease(Lease::Fixed(Duration::from_secs(60))).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease {
    /// Renewed to this duration after every third of it, as long as the guard lives. When the process dies, others wait at
    /// most this long. Redisson's watchdog.
    Renewed(Duration),
    /// Never renewed: the hold expires after this duration, even if the guard still exists. Beside readers of Redisson, a read
    /// may end earlier: Redisson's watchdog sets the lease of all readers to its own timeout.
    Fixed(Duration),
}

impl Lease {
    /// How long the store keeps the hold without a renewal.
    pub fn duration(self) -> Duration {
        match self {
            Self::Renewed(duration) | Self::Fixed(duration) => duration,
        }
    }
}

impl Default for Lease {
    /// Redisson's default: renewed, 30 seconds.
    fn default() -> Self {
        Self::Renewed(Duration::from_secs(30))
    }
}

/// Who may take a lock again that it holds (may re-enter it).
///
/// Two requests with the same owner (a clone of one value) share their holds: a second acquisition of a key that the owner
/// holds succeeds at once, without a question to the store. Every acquisition without an owner has an owner of its own. An
/// owner has a meaning within one process only. It is never a task or a thread, and is never sent.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let locks = tower_distributed_lock::LockClient::new(tower_distributed_lock::MemoryStore::new());
/// use tower_distributed_lock::Owner;
///
/// let owner = Owner::new();
/// let outer = locks.lock("lock:order:7").owner(&owner).await?;
/// let inner = locks.lock("lock:order:7").owner(&owner).await?; // at once: the owner holds it
/// assert!(locks.lock("lock:order:7").wait(std::time::Duration::ZERO).await.is_err()); // other owners wait
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner(NonZeroU64);

impl Owner {
    /// A new owner, different from all others.
    #[allow(clippy::new_without_default)] // Two defaults would not be equal.
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NonZeroU64::new(NEXT.fetch_add(1, Ordering::Relaxed));
        Self(number.expect("no process makes 2⁶⁴ owners"))
    }

    /// Its number, unique in this process.
    pub(crate) fn number(&self) -> u64 {
        self.0.get()
    }
}

/// The id of one grant: `<client uuid>:<n>`, where the client never uses an `n` twice.
///
/// Redisson has `<client uuid>:<thread id>` in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HoldId {
    client: Uuid,
    n: u64,
}

impl HoldId {
    /// The length of the longest id.
    pub(crate) const LONGEST: usize = Hyphenated::LENGTH + ":18446744073709551615".len();

    /// The id of the `n`-th grant of `client`.
    pub fn new(client: Uuid, n: u64) -> Self {
        Self { client, n }
    }

    /// The client of this crate that has made this hold id; `None` if another program has.
    pub(crate) fn ours(name: &str) -> Option<Uuid> {
        let client = name.split(':').next().unwrap_or_default();
        let client = Uuid::try_parse(client).ok()?;
        (client.get_version_num() == 8).then_some(client)
    }

    /// Its number among the grants of the client: it rises.
    pub(crate) fn number(self) -> u64 {
        self.n
    }

    /// The client that this grant belongs to.
    pub fn client(self) -> Uuid {
        self.client
    }

    /// The whole id, without `fmt`, because every command contains it several times.
    pub(crate) fn encode(self, buffer: &mut [u8; Self::LONGEST]) -> &[u8] {
        let colon = Hyphenated::LENGTH;
        self.client.hyphenated().encode_lower(&mut buffer[..colon]);
        buffer[colon] = b':';
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(self.n).as_bytes();
        let end = colon + 1 + digits.len();
        buffer[colon + 1..end].copy_from_slice(digits);
        &buffer[..end]
    }
}

impl fmt::Display for HoldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut buffer = [0; Self::LONGEST];
        let id = std::str::from_utf8(self.encode(&mut buffer));
        f.write_str(id.expect("digits and signs"))
    }
}

/// One grant in the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Hold {
    /// The key.
    pub key: LockKey,
    /// The mode.
    pub mode: LockMode,
    /// The id of the grant.
    pub id: HoldId,
}

/// A number that grows with every exclusive grant of a key.
///
/// Send it with every write to the protected resource, and let the resource refuse a token that is smaller than the largest
/// that it has seen: then a holder that was paused past its lease can do no harm (Kleppmann, "How to do distributed
/// locking", 2016).
///
/// In SQL, the row stores the largest token that has written to it. An update of no row means that there was a later holder.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let locks = tower_distributed_lock::LockClient::new(tower_distributed_lock::MemoryStore::new());
/// let guard = locks.lock("lock:document:42").fenced().await?;
/// let token = guard.fencing_token().expect("it was asked for").value();
/// let update = "UPDATE documents SET content = $1, token = $2 WHERE id = 42 AND token <= $2";
/// # let _ = (update, token);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FencingToken(u64);

impl FencingToken {
    /// Wraps a token that the store issued.
    pub fn new(value: u64) -> Self {
        Self(value)
    }

    /// The number.
    pub fn value(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_is_named_by_its_client_and_its_number() {
        let client = Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        for (n, name) in [
            (0, "01234567-89ab-cdef-0123-456789abcdef:0"),
            (
                u64::MAX,
                "01234567-89ab-cdef-0123-456789abcdef:18446744073709551615",
            ),
        ] {
            assert_eq!(HoldId::new(client, n).to_string(), name);
        }
    }
}
