//! Follows channels of Redisson, for processes of ours that wait for its clients.

use std::collections::HashMap;
use std::sync::Arc;

use tokio_util::task::AbortOnDropHandle;

use super::protocol::calls;
use super::servers::Router;
use crate::lock::{HoldId, LockKey};
use crate::store::Attempt;
use crate::sync::Mutex;

/// Attempts that wait for a client of Redisson. Redisson publishes the end of its hold on a channel of its own. Only the
/// process that is first in line listens there, and processes with readers that wait for a writer of Redisson. So a
/// release wakes no other process, whatever the length of the line.
///
/// The mutex protects `followed`, which has an entry for each such attempt: other attempts of the process may wait on the
/// same channel of ours, and their answers do not concern it. The entry's task forwards the messages to the listeners of
/// that channel. An entry begins with the refusal that asks for it. It ends with the next answer that does not, or with the
/// withdrawal of the attempt.
#[derive(Default)]
pub(super) struct Outside {
    followed: Mutex<HashMap<HoldId, AbortOnDropHandle<()>>>,
}

impl Outside {
    /// Follows Redisson's channel for an attempt in line that was refused.
    pub(super) fn follow(&self, router: &Arc<Router>, attempt: &Attempt) {
        let id = attempt.hold.id;
        let mut followed = self.followed.lock();
        if followed.get(&id).is_some_and(|task| !task.is_finished()) {
            return;
        }
        let theirs = calls::redissons_channel(&attempt.hold).to_string();
        let key = attempt.hold.key.clone();
        let own = calls::channel(attempt);
        let task = tokio::spawn(pass_on(router.clone(), key, theirs, own));
        let before = followed.insert(id, AbortOnDropHandle::new(task));
        drop(followed);
        drop(before);
    }

    /// Ends the entry: the attempt is over, or waits for a process of ours.
    pub(super) fn forget(&self, attempt: HoldId) {
        let ended = self.followed.lock().remove(&attempt);
        drop(ended);
    }
}

/// Wakes the listeners of `own` when the subscription of `theirs` is acknowledged, since Redisson may have released the
/// lock before that; then at each message. It ends with the subscription: the attempt asks at least every second, and its next
/// refusal begins again.
async fn pass_on(router: Arc<Router>, key: LockKey, theirs: String, own: String) {
    match router.listen(&key, theirs).await {
        Ok(mut wakeups) => loop {
            if let Some(node) = router.known_node(&key) {
                node.subscriptions.wake(&own);
            }
            if !wakeups.wait().await {
                return;
            }
        },
        Err(error) => {
            tracing::debug!(%error, "could not subscribe to Redisson's channel, polling instead");
        }
    }
}
