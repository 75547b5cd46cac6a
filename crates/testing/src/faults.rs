//! The faults of a [`FaultyStore`](super::FaultyStore), and their chances.

use std::time::Duration;

use fastrand::Rng;

/// A fault of a call, a connection or a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The request does not arrive. The caller gets [`Unanswered`](tower_distributed_lock::error::StoreErrorKind::Unanswered).
    RequestLost,
    /// The request is executed, and the answer is lost.
    ReplyLost,
    /// The caller gets no answer in time; the request is executed later, perhaps after it was sent again or withdrawn.
    Late,
    /// The request is executed twice in a row. The caller gets the first answer.
    Twice,
    /// The request and its answer are slow, so that calls overtake each other.
    Slow,
    /// The store answers that it cannot serve now: [`Transient`](tower_distributed_lock::error::StoreErrorKind::Transient).
    Busy,
    /// The caller's connection breaks. Requests and answers under way are lost. Until the outage is over, calls fail as
    /// [`Unreachable`](tower_distributed_lock::error::StoreErrorKind::Unreachable) and wake-ups are lost. Then every listener is woken.
    Disconnected,
    /// A wake-up is lost although the connection is up. The contract of a store does not allow that; the client asks again
    /// within a second.
    WakeupLost,
    /// One hold vanishes, as by an eviction or by an operator.
    Vanished,
    /// All holds and waiters vanish, as when a server without persistence is restarted.
    Flushed,
}

impl Fault {
    /// All faults.
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

/// The chance of each [`Fault`], and its durations.
///
/// A chance is per call (of [`Fault::WakeupLost`], per wake-up), between 0 and 1. Start from a preset and change what
/// matters:
///
/// ```
/// use std::time::Duration;
/// use tower_distributed_lock_testing::{Fault, Faults};
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
    /// No faults and no delays.
    pub fn none() -> Self {
        Self {
            chances: [0.0; Fault::ALL.len()],
            delay: Duration::from_millis(5),
            timeout: Duration::from_millis(100),
            lateness: Duration::from_secs(2),
            outage: Duration::from_secs(1),
        }
    }

    /// A bad network and a good server: a few calls in a hundred fail, and the server loses no data. Live holds always
    /// exclude each other; some are lost because they cannot be renewed.
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

    /// All faults, often: a worse network, lost wake-ups, and a server that loses data. Holders overlap; confirmed holds do
    /// not.
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

    /// Sets the chance of a fault.
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

    /// Sets the longest delay of a slow call, each way (default 5 ms).
    pub fn delay(mut self, longest: Duration) -> Self {
        self.delay = longest;
        self
    }

    /// Sets how long a caller waits for an answer (default 100 ms).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets how long after it was sent a late request is executed at most (default 2 s).
    ///
    /// A store must refuse a withdrawn attempt, but not for ever.
    ///
    /// # Panics
    ///
    /// If it is longer than stores remember withdrawals: 2 minutes.
    pub fn lateness(mut self, longest: Duration) -> Self {
        assert!(
            longest <= tower_distributed_lock::store::LATENESS,
            "no request is late for longer than {:?}",
            tower_distributed_lock::store::LATENESS
        );
        self.lateness = longest;
        self
    }

    /// Sets how long a connection stays broken at most (default 1 s).
    pub fn outage(mut self, longest: Duration) -> Self {
        self.outage = longest;
        self
    }

    /// Draws whether `fault` occurs now.
    pub(super) fn strikes(&self, fault: Fault, random: &mut Rng) -> bool {
        let chance = self.chances[fault as usize];
        // A fault without a chance draws no number, so that the histories of a preset do not change when a fault is added
        // to the list.
        chance > 0.0 && random.f64() < chance
    }
}
