//! The channels of Redisson, for processes of ours that are first in line.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::calls;
use super::router::Router;
use crate::lock::{Hold, LockKey};
use crate::store::Attempt;

/// The pause before a channel that could not be subscribed to is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// How often a task looks whether the channel of the process still has a listener. It ends when there was none twice.
const LOOK: Duration = Duration::from_millis(200);

/// Attempts that Redisson may hold up. A client of Redisson ends its hold on a channel on which those in our line do not
/// listen: only the process that is first in line does, so that a release wakes one process of ours, whatever the length
/// of the line.
///
/// `followed` has an entry for each channel of this process in line that follows Redisson's. Its task passes the messages
/// on to those who listen on the channel of the process. An entry begins with the refusal that asks for it. It ends with
/// the next refusal that does not, with the withdrawal of the attempt, or when no listener is left. It lives on while this
/// process holds the lock: the process measures the turns of the others by what it hears.
#[derive(Default)]
pub(super) struct Outside {
    followed: Mutex<HashMap<String, Following>>,
}

/// A task that ends with its entry.
struct Following {
    task: JoinHandle<()>,
    theirs: String,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Outside {
    /// Follows Redisson's channel for an attempt that stands in line and was refused, or does so no longer.
    pub(super) fn follow(&self, router: &Arc<Router>, attempt: &Attempt, listens: bool) {
        let own = calls::channel(attempt);
        let mut followed = self.followed();
        if !listens {
            let ended = followed.remove(&own);
            drop(followed);
            drop(ended);
        } else if followed.get(&own).is_none_or(|one| one.task.is_finished()) {
            let theirs = calls::redissons_channel(&attempt.hold).to_string();
            let key = attempt.hold.key.clone();
            let task = pass_on(router.clone(), key, theirs.clone(), own.clone());
            let task = tokio::spawn(task);
            let before = followed.insert(own, Following { task, theirs });
            drop(followed);
            drop(before);
        }
    }

    /// The attempt is over.
    pub(super) fn forget(&self, attempt: &Attempt) {
        let ended = self.followed().remove(&calls::channel(attempt));
        drop(ended);
    }

    /// Whether Redisson's messages are passed on to this channel.
    pub(super) fn follows(&self, own: &str) -> bool {
        let followed = self.followed();
        followed.get(own).is_some_and(|one| !one.task.is_finished())
    }

    /// How many channels of this process follow the one on which the end of `hold` is published.
    pub(super) fn followers(&self, hold: &Hold) -> usize {
        let theirs = calls::redissons_channel(hold).to_string();
        let followed = self.followed();
        let alike = followed
            .values()
            .filter(|one| one.theirs == theirs && !one.task.is_finished());
        alike.count()
    }

    fn followed(&self) -> MutexGuard<'_, HashMap<String, Following>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes those who listen on `own` when the subscription of `theirs` is acknowledged, since Redisson may have released the
/// lock before that; then at each message.
async fn pass_on(router: Arc<Router>, key: LockKey, theirs: String, own: String) {
    let following = async {
        loop {
            match router.listen(&key, theirs.clone()).await {
                Ok(mut wakeups) => loop {
                    router.wake(&key, &own);
                    wakeups.wait().await;
                },
                Err(error) => {
                    tracing::debug!(%error, "could not subscribe to Redisson's channel, polling instead");
                    sleep(RETRY).await;
                }
            }
        }
    };
    let unheard = async {
        let mut looks = 0;
        while looks < 2 {
            sleep(LOOK).await;
            looks = match router.listeners(&key, &own) {
                0 => looks + 1,
                _ => 0,
            };
        }
    };
    tokio::select! {
        () = following => {}
        () = unheard => {}
    }
}
