//! The channels on which waiters are woken.

use smallvec::SmallVec;
use tokio::sync::watch;
use uuid::Uuid;

use crate::lock::{HoldId, LockMode};
use crate::store::Attempt;

/// The channel of a waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    /// Attempts in `Reentrant` mode without a place in line.
    Exclusive,
    /// Attempts to read or to write without a place in line.
    ReadWrite,
    /// Attempts to read, which writers wake.
    Readers,
    /// One waiter of the fair queue.
    Fair(HoldId),
    /// The attempts of one client with a place in line.
    Turn(Uuid),
    /// Attempts for a permit without a place in line.
    Permits,
}

impl Channel {
    /// The channel of such an attempt.
    pub(super) fn of(attempt: &Attempt) -> Self {
        let hold = &attempt.hold;
        match hold.mode {
            LockMode::Fair => Self::Fair(hold.id),
            LockMode::Read if attempt.is_woken_in_turn() => Self::Readers,
            _ if attempt.is_woken_in_turn() => Self::Turn(hold.id.client()),
            LockMode::Reentrant => Self::Exclusive,
            LockMode::Read | LockMode::Write => Self::ReadWrite,
            LockMode::Permit(_) => Self::Permits,
        }
    }

    /// Whether attempts without a place in line listen here.
    fn is_outside(self) -> bool {
        matches!(self, Self::Exclusive | Self::ReadWrite | Self::Permits)
    }
}

/// The channels to wake.
pub(super) type Wake = SmallVec<[Channel; 3]>;

/// The listeners of one key, in the order of their arrival.
///
/// Each has its own signal: a shared one would wake them in a random order, and a simulation could not be replayed.
#[derive(Default)]
pub(super) struct Listeners(Vec<(Channel, watch::Sender<()>)>);

impl Listeners {
    /// Adds a listener, until [`Listeners::leave`] gets the sender.
    pub(super) fn join(&mut self, channel: Channel) -> watch::Sender<()> {
        let signal = watch::Sender::new(());
        self.0.push((channel, signal.clone()));
        signal
    }

    /// Removes the listener of one [`Listeners::join`].
    pub(super) fn leave(&mut self, signal: &watch::Sender<()>) {
        self.0.retain(|(_, other)| !other.same_channel(signal));
    }

    /// The signals that wake `wake`, and how many of them attempts without a place in line have.
    pub(super) fn signals(&self, wake: &Wake) -> (Signals, usize) {
        let woken = |channel: &Channel| wake.contains(channel);
        let woken = self.0.iter().filter(|(channel, _)| woken(channel));
        let outside = woken.clone().filter(|(channel, _)| channel.is_outside());
        let outside = outside.map(|(_, signal)| signal.receiver_count()).sum();
        let signals = woken.map(|(_, signal)| signal.clone()).collect();
        (Signals(signals), outside)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Signals to be sent when no mutex is held, because wakers are code outside this crate.
#[derive(Default)]
#[must_use]
pub(super) struct Signals(Vec<watch::Sender<()>>);

impl Signals {
    pub(super) fn send(self) {
        for signal in &self.0 {
            signal.send_replace(());
        }
    }
}
