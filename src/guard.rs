//! What a caller holds.

use std::fmt;
use std::sync::Arc;

use futures_util::future::{Either, join_all, select_all};
use tokio::time::Instant;
use tracing::Span;

use crate::error::LockError;
use crate::keeper::LiveHold;
use crate::lock::{FencingToken, LockKey, LockMode};
use crate::queue::Share;
use crate::store::Record;
use crate::telemetry::{Holding, Labels, Waiting};

/// A lock that is held: one key, or several at once.
///
/// As long as the guard lives, the lock is renewed, unless its lease is fixed or its longest hold is over. Dropping the
/// guard releases the lock in the background; it never blocks, and works outside a runtime too. [`LockGuard::release`]
/// releases it and says whether it was held until then.
#[must_use = "a guard that is dropped releases its lock at once"]
pub struct LockGuard {
    first: Share,
    rest: Vec<Share>,
    /// `None` if nobody observes it.
    holding: Option<Box<Holding>>,
}

impl LockGuard {
    pub(crate) fn one(share: Share) -> Self {
        Self {
            first: share,
            rest: Vec::new(),
            holding: None,
        }
    }

    /// `None` if there is nothing to hold.
    pub(crate) fn all(mut shares: Vec<Share>) -> Option<Self> {
        if shares.is_empty() {
            return None;
        }
        let first = shares.remove(0);
        Some(Self {
            first,
            rest: shares,
            holding: None,
        })
    }

    /// The same, at the end of the wait for it.
    pub(crate) fn observed(mut self, waiting: Waiting) -> Self {
        let holding = waiting.granted(self.shares().map(Share::live));
        self.holding = holding.map(Box::new);
        self
    }

    /// For the work that is done under the lock.
    pub(crate) fn span(&self) -> Span {
        let holding = self.holding.as_deref();
        holding.map_or_else(Span::none, Holding::span)
    }

    /// The labels of its measurements; `None` if it is not observed.
    pub(crate) fn labels(&self) -> Option<Labels> {
        self.holding.as_deref().map(Holding::labels)
    }

    fn shares(&self) -> impl Iterator<Item = &Share> + Clone {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// The key that is held; the first in order if there are several.
    pub fn key(&self) -> &LockKey {
        &self.first.live().hold.key
    }

    /// Every key that is held, in order.
    pub fn keys(&self) -> impl Iterator<Item = &LockKey> {
        self.shares().map(|share| &share.live().hold.key)
    }

    /// The mode of the hold on [`LockGuard::key`].
    ///
    /// Re-entry joins what its owner holds already, so this may be the mode of an outer acquisition.
    pub fn mode(&self) -> LockMode {
        self.first.live().hold.mode
    }

    /// The token of this grant of [`LockGuard::key`]; `None` unless it was asked for. A guard of several keys has
    /// [`fencing_tokens`](Self::fencing_tokens).
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.first.token()
    }

    /// Every key with the token of its grant, in order; `None` unless it was asked for. A token protects the resource of its
    /// own key only.
    pub fn fencing_tokens(&self) -> impl Iterator<Item = (&LockKey, Option<FencingToken>)> {
        self.shares()
            .map(|share| (&share.live().hold.key, share.token()))
    }

    /// Until when the lock is certainly held, by this process's clock, if nothing renews it; the earliest of all keys.
    pub fn deadline(&self) -> Instant {
        self.shares()
            .map(|share| deadline(share.live(), share.limit()))
            .min()
            .expect("a guard holds at least one key")
    }

    /// Whether any of its keys is lost: its deadline passed, or the store said so.
    pub fn is_lost(&self) -> bool {
        self.shares()
            .any(|share| is_lost(share.live(), share.limit()))
    }

    /// Waits until any of its keys is lost; for as long as the guard is held, this may never return.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn lost(&self) {
        match self.rest.is_empty() {
            true => Watched::new(&self.first).lost().await,
            false => self.handle().lost().await,
        }
    }

    /// A cheap observer, which can outlive the guard and be handed to others.
    pub fn handle(&self) -> LockHandle {
        LockHandle {
            watched: self.shares().map(Watched::new).collect(),
        }
    }

    /// Releases the lock, and confirms that it was held until now.
    ///
    /// `Ok` is a statement about the past: from the grant until this release, the store carried this hold without a gap,
    /// so no work of another confirmed holder overlapped. One round trip; none more if the hold lives on
    /// because others share it.
    ///
    /// # Errors
    ///
    /// * [`LockError::Lost`] if the store did not carry the hold any more, or its longest hold was over.
    /// * [`LockError::Unavailable`] if the store did not answer in time: nothing is confirmed. The release goes on in the
    ///   background until the lease is over.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the lock is on its way to be released; dropping the future leaves the rest to the background.
    pub async fn release(self) -> Result<(), LockError> {
        let released = match self.rest.is_empty() {
            true => Either::Left(self.first.release()),
            false => Either::Right(release_all(self.first, self.rest)),
        };
        Holding::over(self.holding, released).await
    }
}

impl LockGuard {
    /// Drops the guard of a lock under which nothing was done. Telemetry does not count it as a hold.
    pub(crate) fn discard(mut self) {
        if let Some(holding) = self.holding.take() {
            holding.discard();
        }
    }

    /// Releases its one key, and has the store remember `record` in the same step if it was held until now.
    pub(crate) async fn release_recording(self, record: Record) -> Result<(), LockError> {
        debug_assert!(self.rest.is_empty(), "a record belongs to one key");
        let released = self.first.release_recording(record);
        Holding::over(self.holding, released).await
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("keys", &self.keys().collect::<Vec<_>>())
            .field("mode", &self.mode())
            .field("is_lost", &self.is_lost())
            .finish_non_exhaustive()
    }
}

/// Observes a lock that somebody else holds, such as the one that the layer holds around a request.
///
/// It keeps nothing alive: the lock is released when its guard says so.
#[derive(Clone)]
pub struct LockHandle {
    watched: Arc<[Watched]>,
}

#[derive(Clone)]
struct Watched {
    live: Arc<LiveHold>,
    token: Option<FencingToken>,
    limit: Option<Instant>,
}

impl LockHandle {
    /// The first key that is held.
    pub fn key(&self) -> &LockKey {
        &self.watched[0].live.hold.key
    }

    /// The mode of the hold on [`LockHandle::key`].
    pub fn mode(&self) -> LockMode {
        self.watched[0].live.hold.mode
    }

    /// Every key that is held, in order.
    pub fn keys(&self) -> impl Iterator<Item = &LockKey> {
        self.watched.iter().map(|watched| &watched.live.hold.key)
    }

    /// The token of the grant of [`LockHandle::key`]; `None` unless it was asked for. A lock on several keys has
    /// [`fencing_tokens`](Self::fencing_tokens).
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.watched[0].token
    }

    /// Every key with the token of its grant, in order; `None` unless it was asked for. A token protects the resource of its
    /// own key only.
    pub fn fencing_tokens(&self) -> impl Iterator<Item = (&LockKey, Option<FencingToken>)> {
        let watched = self.watched.iter();
        watched.map(|watched| (&watched.live.hold.key, watched.token))
    }

    /// Until when the lock is certainly held, by this process's clock, if nothing renews it; the earliest of all keys.
    pub fn deadline(&self) -> Instant {
        let deadlines = self
            .watched
            .iter()
            .map(|watched| deadline(&watched.live, watched.limit));
        deadlines.min().expect("a lock has at least one key")
    }

    /// Whether another owner that asks for `key` in `mode` has to wait for this lock.
    pub(crate) fn excludes(&self, key: &LockKey, mode: LockMode) -> bool {
        self.watched.iter().any(|watched| {
            let hold = &watched.live.hold;
            hold.key == *key
                && (hold.mode.is_exclusive() || mode.is_exclusive())
                && !watched.live.has_ended()
        })
    }

    /// Whether the lock was lost. A lock that was released is not lost.
    pub fn is_lost(&self) -> bool {
        self.watched
            .iter()
            .any(|watched| is_lost(&watched.live, watched.limit))
    }

    /// Waits until the lock is lost; for ever if it is released instead.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn lost(&self) {
        if let [only] = &*self.watched {
            return only.lost().await;
        }
        let lost = self.watched.iter().map(|watched| Box::pin(watched.lost()));
        select_all(lost).await;
    }
}

impl Watched {
    fn new(share: &Share) -> Self {
        Self {
            live: share.live().clone(),
            token: share.token(),
            limit: share.limit(),
        }
    }

    async fn lost(&self) {
        match self.limit {
            None => self.live.lost().await,
            Some(limit) => tokio::select! {
                biased; // without chance, a simulation replays
                () = self.live.lost() => {}
                () = tokio::time::sleep_until(limit) => {
                    if self.live.has_ended() {
                        self.live.lost().await;
                    }
                }
            },
        }
    }
}

impl fmt::Debug for LockHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockHandle")
            .field("key", self.key())
            .field("mode", &self.mode())
            .field("is_lost", &self.is_lost())
            .finish_non_exhaustive()
    }
}

async fn release_all(first: Share, rest: Vec<Share>) -> Result<(), LockError> {
    let releases = std::iter::once(first).chain(rest).map(Share::release);
    let mut result = Ok(());
    for released in join_all(releases).await {
        match released {
            Err(LockError::Lost) => result = Err(LockError::Lost),
            Err(error) if result.is_ok() => result = Err(error),
            _ => {}
        }
    }
    result
}

fn deadline(live: &LiveHold, limit: Option<Instant>) -> Instant {
    let deadline = live.deadline();
    limit.map_or(deadline, |limit| deadline.min(limit))
}

fn is_lost(live: &LiveHold, limit: Option<Instant>) -> bool {
    live.is_lost() || !live.has_ended() && limit.is_some_and(|limit| Instant::now() >= limit)
}
