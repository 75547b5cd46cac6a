//! A share in a hold. It returns to the state machine when it is dropped.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::future::join_all;
use tokio::time::Instant;

use super::departed::Departed;
use super::hold::LocalHolder;
use super::key_state::Left;
use super::{NewShare, Queues};
use crate::background::{Background, HoldRelease};
use crate::cleanup::Driven;
use crate::error::{LockError, worst};
use crate::lock::FencingToken;
use crate::store::Record;
use crate::watchdog::{LiveHold, Moment};

/// A share in a live hold. Dropping it ends the share; the last one releases the hold in the background.
pub(crate) struct Share {
    /// `None` once the share has ended.
    queues: Option<Arc<Queues>>,
    live: Arc<LiveHold>,
    holder: LocalHolder,
}

impl Share {
    pub(super) fn new(queues: &Arc<Queues>, grant: NewShare) -> Self {
        queues.background().shared(&grant.live);
        Self::of_new(queues, grant)
    }

    /// The first share of a new hold, whose limit was not extended.
    pub(super) fn of_new(queues: &Arc<Queues>, grant: NewShare) -> Self {
        Self {
            queues: Some(queues.clone()),
            live: grant.live,
            holder: grant.holder,
        }
    }

    pub(crate) fn live(&self) -> &Arc<LiveHold> {
        &self.live
    }

    /// That of its client. The share has not ended.
    pub(super) fn background(&self) -> &Background {
        let queues = self.queues.as_ref();
        queues.expect("the share has not ended").background()
    }

    /// Only a hold without shares is handed over, so this is the token of this share.
    pub(crate) fn token(&self) -> Option<FencingToken> {
        self.live.token()
    }

    /// The share's own limit.
    pub(crate) fn limit(&self) -> Option<Instant> {
        let limit = self.holder.limit;
        (limit != Moment::NEVER).then(|| limit.into())
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.live.is_lost() || self.is_over()
    }

    /// Ends the share at once. The release returns whether the store carried the hold until now, and the store keeps `record` if
    /// it did.
    ///
    /// # Errors
    ///
    /// With a record also `Invalid` if others share the hold: then nothing is recorded.
    pub(crate) fn release(mut self, record: Option<Record>) -> ShareRelease {
        let is_over = self.is_over();
        let record = record.filter(|_| !is_over);
        let records = record.is_some();
        let (queues, departure) = self.leave(record);
        let work = match departure {
            Departure::Last(release) => ReleaseWork::Driven(release),
            Departure::Shared if records => ReleaseWork::done(Err(LockError::invalid(
                "the hold is shared: only its last share can leave a record",
            ))),
            Departure::Shared => self.check(queues),
        };
        ShareRelease { work, is_over }
    }

    /// Asks whether the store carries the hold, which others share.
    fn check(self, queues: Arc<Queues>) -> ReleaseWork {
        if queues.background().holds_now(&self.live) {
            return ReleaseWork::done(Ok(()));
        }
        ReleaseWork::Boxed(Box::pin(async move {
            queues.background().check(&self.live).await
        }))
    }

    fn is_over(&self) -> bool {
        self.limit().is_some_and(|limit| Instant::now() >= limit)
    }

    /// Ends each share, and returns whether the store carried all holds until now.
    pub(crate) async fn release_all(
        shares: impl IntoIterator<Item = Self>,
    ) -> Result<(), LockError> {
        let (mut last, mut shared) = (Vec::new(), Vec::new());
        let mut background = None;
        let mut is_over = false;
        for mut share in shares {
            is_over |= share.is_over();
            background.get_or_insert_with(|| share.background().clone());
            match share.depart(true).1 {
                Some(departed) => last.push(departed),
                None => shared.push(share),
            }
        }
        let Some(background) = background else {
            return Ok(());
        };
        let released = background.end_all(last).in_time();
        let checks = shared.iter().map(|share| background.check(&share.live));
        let (released, checked) = tokio::join!(released, join_all(checks));
        let over = is_over.then_some(Err(LockError::Lost));
        worst(checked.into_iter().chain([released]).chain(over))
    }

    /// Drops all shares. Holds that end are released together in the background.
    pub(crate) fn drop_all(shares: impl IntoIterator<Item = Self>) {
        let mut background = None;
        let mut last = Vec::new();
        for mut share in shares {
            background.get_or_insert_with(|| share.background().clone());
            last.extend(share.depart(true).1);
        }
        if let Some(background) = background
            && !last.is_empty()
        {
            // Dropping the release hands it to the background.
            drop(background.end_all(last));
        }
    }

    /// Ends the share. A hold that leaves a record is not handed over.
    fn leave(&mut self, record: Option<Record>) -> (Arc<Queues>, Departure) {
        let (queues, departed) = self.depart(record.is_none());
        let Some(departed) = departed else {
            return (queues, Departure::Shared);
        };
        let release = queues.background().end(departed, record);
        (queues, Departure::Last(release))
    }

    /// Ends the share in this process; `None` if the hold continues.
    fn depart(&mut self, pass_on: bool) -> (Arc<Queues>, Option<Departed>) {
        let queues = self.queues.take().expect("a share ends once");
        let key = &self.live.hold.key;
        let now = Instant::now();
        // A request that got the hold now would hold the key within the minimum of this one.
        let pass_on = pass_on && self.live.minimum().is_none();
        let left = queues.with(key, |state| {
            state.leave(&self.live, &self.holder, pass_on, queues.at(now))
        });
        let departed = match left {
            Left::LivesOn(effects) => {
                queues.apply(key, effects);
                None
            }
            Left::Release(next) => Some(Departed::new(&queues, &self.live, now, next)),
        };
        (queues, departed)
    }
}

enum Departure {
    Shared,
    Last(Driven<HoldRelease<Departed>>),
}

/// The release of shares: of one that has ended, or of several, which end at its first poll. It is small, because each request
/// of a layer has one.
///
/// # Cancel safety
///
/// A release in the store that has begun continues in the background.
#[must_use = "it says whether the lock was held"]
pub(crate) struct ShareRelease {
    work: ReleaseWork,
    /// The longest hold was over before.
    is_over: bool,
}

enum ReleaseWork {
    Driven(Driven<HoldRelease<Departed>>),
    Boxed(Pin<Box<dyn Future<Output = Result<(), LockError>> + Send>>),
}

impl ReleaseWork {
    fn done(result: Result<(), LockError>) -> Self {
        Self::Driven(Driven::done(result))
    }
}

impl ShareRelease {
    /// The release of shares that end when it is first polled.
    pub(super) fn boxed(
        release: impl Future<Output = Result<(), LockError>> + Send + 'static,
    ) -> Self {
        Self {
            work: ReleaseWork::Boxed(Box::pin(release)),
            is_over: false,
        }
    }

    pub(super) fn done(result: Result<(), LockError>) -> Self {
        Self {
            work: ReleaseWork::done(result),
            is_over: false,
        }
    }

    /// Whether it fails as lost, whatever the store answers.
    pub(crate) fn is_lost(&self) -> bool {
        match &self.work {
            ReleaseWork::Driven(release) => self.is_over || release.is_lost(),
            ReleaseWork::Boxed(_) => self.is_over,
        }
    }
}

impl Future for ShareRelease {
    type Output = Result<(), LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let released = ready!(match &mut self.work {
            ReleaseWork::Driven(release) => Pin::new(release).poll(cx),
            ReleaseWork::Boxed(release) => release.as_mut().poll(cx),
        });
        Poll::Ready(match self.is_over {
            true => Err(LockError::Lost),
            false => released,
        })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.queues.is_some() {
            // Dropping the release hands it to the background.
            drop(self.leave(None));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The future of each request that releases a lock contains one.
    #[test]
    fn the_release_of_a_share_is_small() {
        assert_eq!(size_of::<HoldRelease<Departed>>(), 80);
        assert_eq!(size_of::<ShareRelease>(), 104);
    }
}
