//! A connection that is up.

use std::collections::HashMap;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::endpoint::RawConnection;
use super::script::{Call, ScriptId};
use super::waits::{self, AckQueue};
use crate::error::StoreError;
use crate::sync::Mutex;
use crate::telemetry::store::ConnectionUp;

/// One connection, from the first answer on it to its end.
pub(super) struct Live {
    pub(super) raw: RawConnection,
    /// The number of this connection in its `SharedConnection`.
    pub(super) generation: u64,
    /// Cancelled when the connection is given up as dead: commands without an answer fail.
    pub(super) given_up: CancellationToken,
    /// `None` if a change counts without replicas.
    pub(super) waits: Option<AckQueue>,
    /// When the text of a script was last sent on it. Protected by the mutex alone.
    pub(super) loaded: Mutex<HashMap<ScriptId, Instant>>,
    /// Counts it while it is there.
    pub(super) _up: ConnectionUp,
}

impl Live {
    /// Whether the connection is known to have ended, or cannot wait for replicas any more. `false` does not prove that it is
    /// open.
    pub(super) fn has_ended(&self) -> bool {
        self.raw.has_ended() || self.waits.as_ref().is_some_and(AckQueue::has_ended)
    }

    /// The server did not know the script when it got a call that was sent at `began`. Whether the caller must send the text: only
    /// if it was not sent on this connection since then.
    pub(super) fn must_load(&self, call: &Call, began: Instant) -> bool {
        let mut loaded = self.loaded.lock();
        let sent = loaded.entry(call.script_id()).or_insert(began);
        let is_first = *sent <= began;
        if is_first {
            *sent = Instant::now();
        }
        is_first
    }

    /// Waits until enough replicas have everything that was written on this connection before.
    pub(super) async fn acknowledged(&self) -> Result<(), StoreError> {
        let Some(waits) = &self.waits else {
            return Ok(());
        };
        // Boxed, so that the future of a call without replicas is small.
        Box::pin(async {
            tokio::select! {
                biased;
                answer = waits.join() => answer,
                () = self.given_up.cancelled() => Err(waits::silent()),
            }
        })
        .await
    }
}
