//! What callers carry: a place in the queue, a turn, a share. Each finds its way back when it is dropped.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::active::Sharer;
use super::entry::Left;
use super::lane::Legacy;
use super::{Admission, Asker, Courtesy, Joined, Local, Terms};
use crate::error::LockError;
#[cfg(test)]
use crate::exploration::{self, Mutant};
use crate::keeper::{Driven, LiveHold};
use crate::lock::{FencingToken, HoldId, LockKey, LockMode};
use crate::store::{Record, Wakeups};

/// A place in the queue; resolves at its front. Dropped before, it leaves; dropped after it was given something, it passes
/// that on.
pub(crate) struct Queued {
    local: Arc<Local>,
    key: LockKey,
    mode: LockMode,
    ticket: u64,
    outcome: oneshot::Receiver<Result<Admission, LockError>>,
    done: bool,
}

impl Queued {
    pub(super) fn new(
        local: &Arc<Local>,
        key: &LockKey,
        mode: LockMode,
        ticket: u64,
        outcome: oneshot::Receiver<Result<Admission, LockError>>,
    ) -> Self {
        Self {
            local: local.clone(),
            key: key.clone(),
            mode,
            ticket,
            outcome,
            done: false,
        }
    }
}

impl Future for Queued {
    type Output = Result<Admission, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = std::task::ready!(Pin::new(&mut self.outcome).poll(cx));
        self.done = true;
        Poll::Ready(outcome.expect("a queued waiter is never forgotten"))
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        #[cfg(test)]
        if exploration::has(Mutant::GiftKept) {
            mem::forget(self.outcome.try_recv());
        }
        let (waiter, deliveries) = self.local.with(&self.key, |entry| {
            entry.cancel(self.mode, self.ticket, self.local.at())
        });
        // Its waker is foreign code, and not to be dropped under the mutex.
        drop(waiter);
        self.local.deliver(&self.key, deliveries);
        // What was delivered meanwhile is dropped with the receiver, and passed on by that.
    }
}

/// The turn to ask the store for a key. Dropped without a grant, it passes to the next in line.
pub(crate) struct Turn {
    local: Arc<Local>,
    key: LockKey,
    asker: Asker,
    legacy: Legacy,
    done: bool,
}

impl Turn {
    pub(super) fn new(local: &Arc<Local>, key: &LockKey, asker: Asker, legacy: Legacy) -> Self {
        Self {
            local: local.clone(),
            key: key.clone(),
            asker,
            legacy,
            done: false,
        }
    }

    /// What this turn listens with; those that follow go on listening.
    pub(crate) fn ear(&mut self) -> &mut Option<Wakeups> {
        &mut self.legacy.ear
    }

    /// Whom to let go first.
    pub(crate) fn courtesy(&mut self) -> &mut Courtesy {
        &mut self.legacy.courtesy
    }

    /// The hold before was released, `listeners` have heard of it, and the answer took so long.
    fn released(&mut self, listeners: usize, took: Duration) {
        let listens = self.legacy.ear.is_some();
        self.legacy.courtesy = Courtesy::after(listeners, listens, took);
    }

    /// The owner's write hold, if this is the turn to read under it: ask with its id.
    pub(crate) fn nested(&self) -> Option<HoldId> {
        self.asker.nested
    }

    /// Whether others of this process hold the key, or ask for it at the same time.
    pub(crate) fn is_crowded(&self) -> bool {
        self.local.with(&self.key, |entry| entry.is_crowded())
    }

    /// Somebody else holds the lock, for so long yet: those who wait behind this turn may want to know.
    pub(crate) fn refused(&self, retry_after: Duration) {
        let until = Instant::now().checked_add(retry_after);
        self.local
            .with(&self.key, |entry| entry.refused(&self.asker, until));
    }

    /// The store granted `live`: renews it and shares it.
    pub(crate) fn granted(mut self, live: LiveHold, terms: &Terms) -> Share {
        self.done = true;
        let live = Arc::new(live.on(terms.route.clone()));
        let ear = self.legacy.ear.take();
        let (joined, deliveries) = self.local.with(&self.key, |entry| {
            entry.granted(live.clone(), terms, &self.asker, ear, self.local.at())
        });
        // Kept only now: should it be lost at once, the state machine knows whom to tell.
        self.local.keeper().keep(&live);
        self.local.deliver(&self.key, deliveries);
        Share::new(&self.local, joined)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        #[cfg(test)]
        if exploration::has(Mutant::TurnKept) {
            return;
        }
        let legacy = mem::take(&mut self.legacy);
        let deliveries = self.local.with(&self.key, |entry| {
            entry.yielded(&self.asker, legacy, self.local.at())
        });
        self.local.deliver(&self.key, deliveries);
    }
}

/// A share in a live hold. Dropped, it leaves; the last one releases the hold in the background.
pub(crate) struct Share {
    local: Arc<Local>,
    live: Arc<LiveHold>,
    sharer: Sharer,
    token: Option<FencingToken>,
    left: bool,
}

impl Share {
    pub(super) fn new(local: &Arc<Local>, joined: Joined) -> Self {
        Self {
            local: local.clone(),
            live: joined.live,
            sharer: joined.sharer,
            token: joined.token,
            left: false,
        }
    }

    pub(crate) fn live(&self) -> &Arc<LiveHold> {
        &self.live
    }

    pub(crate) fn token(&self) -> Option<FencingToken> {
        self.token
    }

    /// When the share's own time is over.
    pub(crate) fn limit(&self) -> Option<Instant> {
        self.sharer.limit
    }

    /// Leaves, and says whether the store carried the hold until now.
    ///
    /// # Cancel safety
    ///
    /// Leaving happens at the first poll; a release that was begun is finished in the background.
    pub(crate) async fn release(mut self) -> Result<(), LockError> {
        let over = self.is_over();
        let confirmed = match self.leave(Ending::PassOn) {
            Departure::Last(release) => release.await,
            Departure::Shared => self.local.keeper().check(&self.live).await,
        };
        if over {
            Err(LockError::Lost)
        } else {
            confirmed
        }
    }

    /// Leaves as the last one, and has the store remember `record` if it carried the hold until now.
    ///
    /// # Errors
    ///
    /// Also `Invalid` if others share the hold: then nothing is remembered.
    pub(crate) async fn release_recording(mut self, record: Record) -> Result<(), LockError> {
        if self.is_over() {
            return self.release().await;
        }
        match self.leave(Ending::Record(record)) {
            Departure::Last(release) => release.await,
            Departure::Shared => Err(LockError::Invalid(
                "the hold is shared: only its last share can leave a record",
            )),
        }
    }

    fn is_over(&self) -> bool {
        self.limit().is_some_and(|limit| Instant::now() >= limit)
    }

    fn leave(&mut self, ending: Ending) -> Departure {
        self.left = true;
        let local = &self.local;
        let key = &self.live.hold.key;
        let pass_on = matches!(ending, Ending::PassOn);
        let left = local.with(key, |entry| {
            entry.leave(&self.live, &self.sharer, pass_on, local.at())
        });
        let (mut until_asked, mut until_done) = (None, None);
        match left {
            Left::Shared => return Departure::Shared,
            Left::Passed(deliveries) => {
                local.deliver(key, deliveries);
                return Departure::Shared;
            }
            Left::LastOfLane(legacy) => {
                let lane = Asker {
                    mode: self.live.hold.mode,
                    owner: None,
                    nested: None,
                };
                until_asked = Some(Turn::new(local, key, lane, legacy));
            }
            Left::LastNested(owner) => {
                until_done = Some(Turn::new(local, key, owner, Legacy::default()));
            }
            Left::Last => {}
        }
        let (keeper, live) = (local.keeper().clone(), self.live.clone());
        let held = keeper.begin_release(&live);
        Departure::Last(Driven::new(keeper.clone(), async move {
            // A lost hold is released too: the store may know better. The next in line asks only afterwards.
            let record = match ending {
                Ending::Record(record) if held => Some(record),
                _ => None,
            };
            let asked = Instant::now();
            let answered = |listeners| {
                if let Some(mut next) = until_asked {
                    next.released(listeners, asked.elapsed());
                }
            };
            let released = keeper.release(live, record, answered).await;
            drop(until_done);
            if held { released } else { Err(LockError::Lost) }
        }))
    }
}

/// How the last share goes.
enum Ending {
    /// To the next in line, or back to the store.
    PassOn,
    /// Back to the store, leaving a record there.
    Record(Record),
}

enum Departure {
    Shared,
    Last(Driven<Result<(), LockError>>),
}

impl Drop for Share {
    fn drop(&mut self) {
        if !self.left {
            // Dropping the release hands it to the keeper.
            drop(self.leave(Ending::PassOn));
        }
    }
}
