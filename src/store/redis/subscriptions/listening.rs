//! Listeners of a channel.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::{ChannelLink, Subscriptions};
use crate::error::StoreError;
use crate::store::Wakeups;
use crate::store::redis::failure::unreachable;

/// A subscription that the server may not have acknowledged yet.
pub(super) struct Listening {
    pub(super) signal: watch::Receiver<()>,
    pub(super) link: watch::Receiver<ChannelLink>,
    pub(super) listener: ChannelListener,
}

impl Listening {
    /// Waits until the server has acknowledged the subscription.
    pub(super) async fn acknowledged(mut self, limit: Duration) -> Result<Wakeups, StoreError> {
        let answered =
            |link: &ChannelLink| matches!(link, ChannelLink::On | ChannelLink::Off(Some(_)));
        let answer = timeout(limit, self.link.wait_for(answered)).await;
        let answer = answer.ok().and_then(Result::ok).map(|link| link.clone());
        match answer {
            Some(ChannelLink::Off(Some(error))) => Err(error),
            Some(_) => Ok(Wakeups::new(self.signal, self.listener)),
            None => Err(unreachable("the subscription was not acknowledged in time")),
        }
    }
}

/// A listener. Dropping it notifies the task, which unsubscribes after the last one.
///
/// It does not keep the connection: the connections end with their store.
pub(super) struct ChannelListener {
    pub(super) shared: Weak<Subscriptions>,
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
