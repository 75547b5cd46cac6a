//! What callers carry: a place in the queue, a turn, a share. Each finds its way back when it is dropped.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::entry::{Left, Sharer};
use super::{Admission, Joined, Local, Terms};
use crate::error::LockError;
use crate::keeper::{Driven, Keeper, LiveHold};
use crate::key::LockKey;
use crate::lock::{FencingToken, HoldId, LockMode};
use crate::store::Record;

/// A place in the queue; resolves at its front. Dropped before, it leaves; dropped after it was given something, it passes
/// that on.
pub(crate) struct Queued {
    local: Arc<Local>,
    key: LockKey,
    mode: LockMode,
    ticket: u64,
    admission: oneshot::Receiver<Admission>,
}

impl Queued {
    pub(super) fn new(
        local: &Arc<Local>,
        key: &LockKey,
        mode: LockMode,
        ticket: u64,
        admission: oneshot::Receiver<Admission>,
    ) -> Self {
        Self {
            local: local.clone(),
            key: key.clone(),
            mode,
            ticket,
            admission,
        }
    }
}

impl Future for Queued {
    type Output = Admission;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Admission> {
        Pin::new(&mut self.admission)
            .poll(cx)
            .map(|admission| admission.expect("a queued waiter is never forgotten"))
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.local
            .with(&self.key, |entry| entry.cancel(self.mode, self.ticket));
        // What was delivered meanwhile is dropped with the receiver, and passed on by that.
    }
}

/// The turn to ask the store for a key. Dropped without a grant, it passes to the next in line.
pub(crate) struct Turn {
    local: Arc<Local>,
    key: LockKey,
    mode: LockMode,
    nested: Option<HoldId>,
    done: bool,
}

impl Turn {
    pub(super) fn new(
        local: &Arc<Local>,
        key: &LockKey,
        mode: LockMode,
        nested: Option<HoldId>,
    ) -> Self {
        Self {
            local: local.clone(),
            key: key.clone(),
            mode,
            nested,
            done: false,
        }
    }

    /// The owner's write hold, if this is the turn to read under it: ask with its id.
    pub(crate) fn nested(&self) -> Option<HoldId> {
        self.nested
    }

    /// The store granted `live`: renews it and shares it.
    pub(crate) fn granted(mut self, live: LiveHold, terms: &Terms) -> Share {
        self.done = true;
        let live = Arc::new(live);
        let nested = self.nested.is_some();
        let (joined, deliveries) = self.local.with(&self.key, |entry| {
            entry.granted(live.clone(), terms, nested, Instant::now())
        });
        // Kept only now: should it be lost at once, the state machine knows whom to tell.
        self.local.keeper().keep(&live);
        self.local.deliver(&self.key, deliveries);
        Share::new(&self.local, joined)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.done || self.nested.is_some() {
            return;
        }
        let delivery = self.local.with(&self.key, |entry| entry.yielded(self.mode));
        self.local.deliver(&self.key, delivery);
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
        let left = local.with(key, |entry| {
            let pace = local.pace();
            let pass_on = matches!(ending, Ending::PassOn).then(|| (&pace, Instant::now()));
            entry.leave(&self.live, &self.sharer, pass_on)
        });
        let lane_waits = match left {
            Left::Shared => return Departure::Shared,
            Left::Passed(deliveries) => {
                local.deliver(key, deliveries);
                return Departure::Shared;
            }
            Left::Last(lane_waits) => lane_waits,
        };
        let turn = lane_waits.then(|| Turn::new(local, key, self.live.hold.mode, None));
        let (store, live) = (local.keeper().store(), self.live.clone());
        let held = local.keeper().begin_release(&live);
        Departure::Last(Driven::new(local.keeper().clone(), async move {
            // A lost hold is released too: the store may know better. The next in line asks only afterwards.
            let record = match ending {
                Ending::Record(record) if held => Some(record),
                _ => None,
            };
            let released = Keeper::release(store, live, record, turn).await;
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
