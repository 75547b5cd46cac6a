//! The channels on which waiters are woken.

use tokio::sync::watch;
use uuid::Uuid;

#[cfg(test)]
use crate::exploration::{self, Mutant};
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
            LockMode::Read if attempt.is_called() => Self::Readers,
            _ if attempt.is_called() => Self::Turn(hold.id.client()),
            LockMode::Reentrant => Self::Exclusive,
            LockMode::Read | LockMode::Write => Self::ReadWrite,
            LockMode::Permit(_) => Self::Permits,
        }
    }
}

/// The channels to wake.
pub(super) type Wake = [Option<Channel>; 4];

/// The listeners of one key, in the order of their arrival.
///
/// Each has its own signal: a shared one would wake them in a random order, and a simulation could not be replayed.
#[derive(Default)]
pub(super) struct Listeners(Vec<Listener>);

struct Listener {
    channel: Channel,
    signal: watch::Sender<()>,
}

impl Listeners {
    /// Adds a listener, until [`Listeners::leave`] gets the sender.
    pub(super) fn join(&mut self, channel: Channel) -> watch::Sender<()> {
        let signal = watch::Sender::new(());
        self.0.push(Listener {
            channel,
            signal: signal.clone(),
        });
        signal
    }

    /// Removes the listener of one [`Listeners::join`].
    pub(super) fn leave(&mut self, signal: &watch::Sender<()>) {
        self.0
            .retain(|listener| !listener.signal.same_channel(signal));
    }

    /// The number of listeners on the channels of attempts without a place in line.
    pub(super) fn without_place(&self, wake: &Wake) -> usize {
        let counted = |listener: &&Listener| {
            let channel = listener.channel;
            matches!(
                channel,
                Channel::Exclusive | Channel::ReadWrite | Channel::Permits
            ) && wake.contains(&Some(channel))
        };
        let counted = self.0.iter().filter(counted);
        counted
            .map(|listener| listener.signal.receiver_count())
            .sum()
    }

    /// The signals that wake `wake`.
    pub(super) fn signals(&self, wake: &Wake) -> Signals {
        if self.is_empty() {
            return Signals::default();
        }
        let woken = |listener: &&Listener| wake.contains(&Some(listener.channel));
        #[cfg(test)]
        let woken = |listener: &&Listener| {
            let any = wake.iter().any(Option::is_some);
            woken(listener) || any && exploration::has(Mutant::WakesAll)
        };
        let signals = self.0.iter().filter(woken);
        Signals(signals.map(|listener| listener.signal.clone()).collect())
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
