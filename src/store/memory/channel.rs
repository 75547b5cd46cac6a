//! Who is woken.

use tokio::sync::watch;

use crate::lock::{Hold, HoldId, LockMode};

/// Where a waiter of a key listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    /// Everybody who waits in `Reentrant` mode.
    Exclusive,
    /// Everybody who waits to read or to write.
    ReadWrite,
    /// One waiter of the fair queue.
    Fair(HoldId),
}

impl Channel {
    /// Where attempts for `hold` listen.
    pub(super) fn of(hold: &Hold) -> Self {
        match hold.mode {
            LockMode::Reentrant => Self::Exclusive,
            LockMode::Fair => Self::Fair(hold.id),
            LockMode::Read | LockMode::Write => Self::ReadWrite,
        }
    }
}

/// The channels on which something is worth another try.
pub(super) type Wake = [Option<Channel>; 2];

/// The listeners of one key, in the order in which they came.
///
/// Each has a signal of its own: one that several share would wake them in an order of chance, and a simulation could not
/// be had again.
#[derive(Default)]
pub(super) struct Listeners(Vec<Listener>);

struct Listener {
    channel: Channel,
    signal: watch::Sender<()>,
}

impl Listeners {
    /// Begins to listen, until the sender is given to [`Listeners::leave`].
    pub(super) fn join(&mut self, channel: Channel) -> watch::Sender<()> {
        let signal = watch::Sender::new(());
        self.0.push(Listener {
            channel,
            signal: signal.clone(),
        });
        signal
    }

    /// Ends what one [`Listeners::join`] began.
    pub(super) fn leave(&mut self, signal: &watch::Sender<()>) {
        self.0
            .retain(|listener| !listener.signal.same_channel(signal));
    }

    /// What to send in order to wake `wake`.
    pub(super) fn signals(&self, wake: Wake) -> Signals {
        let woken = |listener: &&Listener| wake.contains(&Some(listener.channel));
        let signals = self.0.iter().filter(woken);
        Signals(signals.map(|listener| listener.signal.clone()).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Signals to be sent when no mutex is held: wakers are foreign code.
#[derive(Default)]
#[must_use]
pub(super) struct Signals(Vec<watch::Sender<()>>);

impl Signals {
    /// How many are woken.
    pub(super) fn listeners(&self) -> usize {
        self.0.iter().map(watch::Sender::receiver_count).sum()
    }

    pub(super) fn send(self) {
        for signal in self.0 {
            signal.send_replace(());
        }
    }
}
