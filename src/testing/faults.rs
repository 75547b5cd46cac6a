//! What goes wrong, and how often.

use std::time::Duration;

use fastrand::Rng;

/// A way in which a call of a store can go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The request never arrives. The caller hears nothing:
    /// [`Unanswered`](crate::error::StoreErrorKind::Unanswered).
    RequestLost,
    /// The request is served, and the caller hears nothing.
    ReplyLost,
    /// The caller hears nothing and gives up; later the request is served, perhaps after it was sent again, or taken back.
    Late,
    /// The request arrives and is served twice in a row. The caller hears the first answer.
    Twice,
    /// The request and its answer travel slowly, so that calls overtake each other.
    Slow,
    /// The store says that it cannot serve just now: [`Transient`](crate::error::StoreErrorKind::Transient).
    Busy,
    /// The caller's connection breaks. What is on its way is lost, in one direction or the other; until the outage is over,
    /// calls fail as [`Unreachable`](crate::error::StoreErrorKind::Unreachable) and wake-ups are lost. Then everybody who
    /// listens is woken.
    Disconnected,
    /// A wake-up is lost though the connection stands. The contract of a store does not allow that; the client survives
    /// it by asking again within a second.
    WakeupLost,
    /// One hold vanishes, as by an eviction or an operator's hand.
    Vanished,
    /// All holds and waiters vanish, as when a server without persistence is restarted.
    Flushed,
}

impl Fault {
    /// Every one.
    pub const ALL: [Self; 10] = [
        Self::RequestLost,
        Self::ReplyLost,
        Self::Late,
        Self::Twice,
        Self::Slow,
        Self::Busy,
        Self::Disconnected,
        Self::WakeupLost,
        Self::Vanished,
        Self::Flushed,
    ];
}

/// How often each [`Fault`] strikes, and how long it takes.
///
/// A chance is per call (of [`Fault::WakeupLost`], per wake-up), between 0 and 1. Start from a preset and change what
/// matters:
///
/// ```
/// use std::time::Duration;
/// use tower_distributed_lock::testing::{Fault, Faults};
///
/// let far_away = Faults::none().chance(Fault::Slow, 1.0).delay(Duration::from_millis(50));
/// let forgetful = Faults::flaky().chance(Fault::Flushed, 0.01);
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Faults {
    chances: [f64; Fault::ALL.len()],
    pub(super) delay: Duration,
    pub(super) timeout: Duration,
    pub(super) lateness: Duration,
    pub(super) outage: Duration,
}

impl Faults {
    /// Nothing goes wrong, and nothing takes time.
    pub fn none() -> Self {
        Self {
            chances: [0.0; Fault::ALL.len()],
            delay: Duration::from_millis(5),
            timeout: Duration::from_millis(100),
            lateness: Duration::from_secs(2),
            outage: Duration::from_secs(1),
        }
    }

    /// A bad network in front of a good server: a few calls in a hundred go wrong, and nothing is forgotten. Live holds
    /// exclude each other all the time; some are lost because they cannot be renewed.
    pub fn flaky() -> Self {
        Self::none()
            .chance(Fault::RequestLost, 0.02)
            .chance(Fault::ReplyLost, 0.02)
            .chance(Fault::Late, 0.02)
            .chance(Fault::Twice, 0.02)
            .chance(Fault::Slow, 0.5)
            .chance(Fault::Busy, 0.02)
            .chance(Fault::Disconnected, 0.005)
    }

    /// Everything that can happen, often: a worse network, lost wake-ups, and a server that forgets. Holders overlap; those
    /// who were confirmed did not.
    pub fn hostile() -> Self {
        Self::none()
            .chance(Fault::RequestLost, 0.05)
            .chance(Fault::ReplyLost, 0.05)
            .chance(Fault::Late, 0.05)
            .chance(Fault::Twice, 0.05)
            .chance(Fault::Slow, 0.5)
            .chance(Fault::Busy, 0.05)
            .chance(Fault::Disconnected, 0.02)
            .chance(Fault::WakeupLost, 0.1)
            .chance(Fault::Vanished, 0.03)
            .chance(Fault::Flushed, 0.005)
    }

    /// Sets how often a fault strikes.
    ///
    /// # Panics
    ///
    /// If `chance` is not between 0 and 1.
    pub fn chance(mut self, fault: Fault, chance: f64) -> Self {
        assert!(
            (0.0..=1.0).contains(&chance),
            "a chance is between 0 and 1: {chance} for {fault:?}"
        );
        self.chances[fault as usize] = chance;
        self
    }

    /// How long a slow call travels at most, each way (default 5 ms).
    pub fn delay(mut self, longest: Duration) -> Self {
        self.delay = longest;
        self
    }

    /// When a caller that hears nothing gives up (default 100 ms).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long after it was sent a late request is served at most (default 2 s).
    ///
    /// A store must refuse what was taken back, but need not remember it for ever.
    ///
    /// # Panics
    ///
    /// If it is longer than stores remember: 2 minutes.
    pub fn lateness(mut self, longest: Duration) -> Self {
        assert!(
            longest <= crate::store::LATENESS,
            "no request is late for longer than {:?}",
            crate::store::LATENESS
        );
        self.lateness = longest;
        self
    }

    /// How long a connection stays broken at most (default 1 s).
    pub fn outage(mut self, longest: Duration) -> Self {
        self.outage = longest;
        self
    }

    /// Whether `fault` strikes now.
    pub(super) fn strikes(&self, fault: Fault, random: &mut Rng) -> bool {
        let chance = self.chances[fault as usize];
        // What never happens draws no number: a preset's histories do not change when a fault is added to the list.
        chance > 0.0 && random.f64() < chance
    }
}
