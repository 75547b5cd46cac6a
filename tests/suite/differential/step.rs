//! The steps of a sequence, and their actors.

use std::time::Duration;

use tower_distributed_lock::lock::{Hold, HoldId};
use tower_distributed_lock::store::{Attempt, Fencing};
use tower_distributed_lock::{LockKey, LockMode};
use uuid::Uuid;

/// Time passes in whole ticks, and nothing expires close to a tick: leases and retentions last a number of ticks and a
/// half, and the store's constants (3 and 120 seconds) are 800 ms away from any tick.
pub(super) const TICK: Duration = Duration::from_millis(2200);

/// Longer than any sequence takes.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Longer than any store remembers: a fair queue remembers the patience of all its waiters.
pub(super) const LONG: u32 = 40_000;

/// The names that are locked; the first two by exclusive locks, the next two by read-write locks, mostly. The last two
/// have permits.
pub(super) const KEYS: [&str; 6] = [
    "account",
    "order{42}x",
    "document",
    "page{é}",
    "upstream",
    "quota{7}",
];

/// The number of keys without permits.
pub(super) const LOCKS: usize = 4;

/// A name that no step locks.
pub(super) const SENTINEL: &str = "sentinel";

/// The number of actors. The first two are `Reentrant`, the next three `Fair`, the next three read and write. The others
/// ask for permits, the last of them by another limit.
pub(super) const ACTORS: u64 = 14;

/// The number of actors that ask for no permits.
pub(super) const LOCKERS: u64 = 8;

/// Added to the number of an actor that writes: an id belongs to one mode.
const WRITES: u64 = ACTORS << 32;

/// The actor and the key of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Who {
    pub(super) key: usize,
    pub(super) actor: u64,
    /// Of the actors that read and write.
    pub(super) writes: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Ask {
    pub(super) who: Who,
    pub(super) patient: bool,
    /// How many further tokens are reserved.
    pub(super) fenced: Option<u32>,
}

#[derive(Debug, Clone)]
pub(super) enum Step {
    Acquire(Ask),
    AcquireAll(Vec<Ask>),
    AcquireAny(Vec<Ask>),
    Renew(Vec<Who>),
    Check(Vec<Who>),
    Release(Who),
    /// With a retention of this number of ticks and a half.
    ReleaseRecording(Who, u32),
    Record(usize),
    Withdraw(Who, bool),
    Listen(Who),
    StopListening(Who),
    ForceUnlock(usize),
    /// `None`: attempts name the limit.
    SetPermits(usize, Option<u32>),
    Ticks(u32),
}

impl Step {
    /// The questions of the step.
    pub(super) fn asks(&self) -> &[Ask] {
        match self {
            Self::Acquire(ask) => std::slice::from_ref(ask),
            Self::AcquireAll(asks) | Self::AcquireAny(asks) => asks,
            _ => &[],
        }
    }

    /// How much time passes in the step.
    pub(super) fn time(&self) -> Duration {
        match self {
            Self::Ticks(ticks) => TICK * *ticks,
            _ => Duration::ZERO,
        }
    }
}

/// An attempt whose subscription tells when every message before its own has been delivered.
pub(super) fn sentinel() -> Attempt {
    Attempt::new(
        Hold {
            key: LockKey::new(SENTINEL),
            mode: LockMode::Reentrant,
            id: HoldId::new(Uuid::nil(), 0),
        },
        TICK,
    )
}

impl Who {
    pub(super) fn mode(self) -> LockMode {
        match (self.actor % ACTORS, self.writes) {
            (0..2, _) => LockMode::Reentrant,
            (2..5, _) => LockMode::Fair,
            (LOCKERS..13, _) => LockMode::permits(2),
            (13, _) => LockMode::permits(3),
            (_, false) => LockMode::Read,
            (_, true) => LockMode::Write,
        }
    }

    pub(super) fn hold(self) -> Hold {
        Hold {
            key: LockKey::new(KEYS[self.key]),
            mode: self.mode(),
            id: self.id(),
        }
    }

    fn id(self) -> HoldId {
        let number = self.actor + if self.writes { WRITES } else { 0 };
        HoldId::new(Uuid::from_u128(u128::from(self.actor)), number)
    }

    /// The same for every attempt of one actor: if a lease were shortened later, a lock and its readers would have
    /// different expiries in Redis until the longest lease ends.
    pub(super) fn lease(self) -> Duration {
        half_past([1, 4, 9, 60][(self.actor / 2 % 4) as usize])
    }

    pub(super) fn attempt(self) -> Attempt {
        Attempt::new(self.hold(), self.lease()).patience(PATIENCE)
    }
}

impl Ask {
    pub(super) fn attempt(self) -> Attempt {
        let attempt = self.who.attempt();
        let patience = attempt.patience.filter(|_| self.patient);
        let fencing = self
            .fenced
            .map(|reserve| Fencing::new((reserve > 0).then_some(half_past(10)), reserve));
        attempt.patience(patience).fencing(fencing)
    }
}

/// Whether the actor usually asks for the key. Only such actors ask for permits, and for a key with permits.
pub(super) fn suits(actor: u64, key: usize) -> bool {
    match actor % ACTORS {
        0..5 => key < 2,
        5..LOCKERS => (2..LOCKS).contains(&key),
        _ => key >= LOCKS,
    }
}

/// Whether a waiter with this id has a place in a queue.
pub(super) fn queues(id: &str) -> bool {
    let actor = id.rsplit(':').next().and_then(|n| n.parse::<u64>().ok());
    (2..5).contains(&(actor.expect("an id ends in a number") % ACTORS))
}

pub(super) fn half_past(ticks: u32) -> Duration {
    TICK * ticks + TICK / 2
}
