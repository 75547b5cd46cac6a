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
    /// Where whoever asks for `hold` listens.
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

/// The listeners of one key: a channel exists while somebody listens on it.
#[derive(Default)]
pub(super) struct Listeners(Vec<Listener>);

struct Listener {
    channel: Channel,
    signal: watch::Sender<()>,
    subscribers: usize,
}

impl Listeners {
    /// Begins to listen.
    pub(super) fn join(&mut self, channel: Channel) -> watch::Receiver<()> {
        if let Some(listener) = self.0.iter_mut().find(|l| l.channel == channel) {
            listener.subscribers += 1;
            return listener.signal.subscribe();
        }
        let (signal, receiver) = watch::channel(());
        self.0.push(Listener {
            channel,
            signal,
            subscribers: 1,
        });
        receiver
    }

    /// Ends what one [`Listeners::join`] began.
    pub(super) fn leave(&mut self, channel: Channel) {
        self.0.retain_mut(|listener| {
            if listener.channel == channel {
                listener.subscribers -= 1;
            }
            listener.subscribers > 0
        });
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
