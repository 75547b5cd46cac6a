//! Listeners of a channel.

use std::sync::{Arc, Weak};

use tokio::sync::watch;

use super::{PubSubShared, Status};

/// A subscription that the server has acknowledged.
pub(in super::super) struct Listening {
    pub(super) signal: watch::Receiver<()>,
    pub(super) status: watch::Receiver<Status>,
    pub(super) listener: ChannelListener,
}

impl Listening {
    /// The next wake-up; `None` if there will be none, because the server does not serve the channel any more or cannot be
    /// reached.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(in super::super) async fn heard(&mut self) -> Option<()> {
        tokio::select! {
            biased;
            heard = self.signal.changed() => heard.ok(),
            _ = self.status.wait_for(|status| matches!(status, Status::Failed(_))) => None,
        }
    }
}

/// A listener. Dropping it notifies the task, which unsubscribes after the last one.
///
/// It does not keep the connection: the connections end with their store.
pub(super) struct ChannelListener {
    pub(super) shared: Weak<PubSubShared>,
    pub(super) channel: Arc<str>,
}

impl Drop for ChannelListener {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let mut registry = shared.registry();
        if let Some(channel) = registry.channels.get_mut(&self.channel) {
            channel.listeners -= 1;
            if channel.listeners == 0 {
                registry.changed.push(self.channel.clone());
                shared.work.notify_one();
            }
        }
    }
}
