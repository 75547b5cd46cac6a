//! A connection that is up.

use std::collections::HashMap;
use std::sync::OnceLock;

use redis::aio::MultiplexedConnection;
use tokio::time::Instant;

use super::endpoint::RawConnection;
use super::sentinel::FollowedMaster;
use super::waits::{AckQueue, unacknowledged};
use crate::error::StoreError;
use crate::store::redis::protocol::script::Call;
use crate::sync::Mutex;
use crate::telemetry::store::ConnectionUp;

/// One connection, from the first answer on it to its end. Callers with a command under way keep it.
pub(crate) struct Wire {
    raw: RawConnection,
    /// Behind sentinels, the master that it leads to.
    pub(crate) master: Option<FollowedMaster>,
    /// When it was opened.
    pub(super) since: Instant,
    why: OnceLock<&'static str>,
    /// `None` if a change counts without replicas.
    waits: Option<AckQueue>,
    /// When the text of a script was last sent on it. Protected by the mutex alone.
    loaded: Mutex<HashMap<&'static str, Instant>>,
    /// Counts it while it is there.
    _up: ConnectionUp,
}

impl Wire {
    pub(crate) fn new(
        raw: RawConnection,
        master: Option<FollowedMaster>,
        waits: Option<AckQueue>,
        up: ConnectionUp,
    ) -> Self {
        Self {
            raw,
            master,
            since: Instant::now(),
            why: OnceLock::new(),
            waits,
            loaded: Mutex::default(),
            _up: up,
        }
    }

    pub(super) fn handle(&self) -> MultiplexedConnection {
        self.raw.handle.clone()
    }

    /// Another connection is to replace it. Commands that were sent on it still get their answers, as long as it works.
    pub(crate) fn end(&self, why: &'static str) {
        // The first reason counts.
        let _ = self.why.set(why);
        self.raw.ended.cancel();
    }

    /// Whether the store has ended it, rather than the server or the network.
    pub(super) fn was_ended(&self) -> bool {
        self.why.get().is_some()
    }

    /// Why it has ended.
    pub(crate) fn why(&self) -> &'static str {
        self.why.get().unwrap_or(&"it broke")
    }

    /// Whether the connection is known to have ended. `false` does not prove that it is open.
    pub(super) fn has_ended(&self) -> bool {
        self.raw.ended.is_cancelled()
    }

    /// Returns when it has ended.
    pub(crate) async fn ended(&self) {
        self.raw.ended.cancelled().await;
    }

    /// It is dead: commands without an answer fail.
    pub(super) fn give_up(&self) {
        self.raw.driver.abort();
    }

    /// The server did not know the script when it got a call that was sent at `began`. Whether the caller must send the text: only
    /// if it was not sent on this connection since then.
    pub(super) fn must_load(&self, call: &Call, began: Instant) -> bool {
        let mut loaded = self.loaded.lock();
        let sent = loaded.entry(call.digest()).or_insert(began);
        let is_first = *sent <= began;
        if is_first {
            *sent = Instant::now();
        }
        is_first
    }

    /// Waits until enough replicas have everything that was written on this connection before.
    pub(crate) async fn acknowledged(&self) -> Result<(), StoreError> {
        let Some(waits) = &self.waits else {
            return Ok(());
        };
        // Boxed, so that the future of a call without replicas is small.
        Box::pin(waits.join()).await?;
        match &self.master {
            Some(master) if master.is_replaced() => {
                Err(unacknowledged("another server is the master now"))
            }
            _ => Ok(()),
        }
    }
}
