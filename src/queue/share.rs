//! A share in a hold. It returns to the state machine when it is dropped.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::departed::{Departed, ShareRelease};
use super::hold::LocalHolder;
use super::key_state::Left;
use super::{NewShare, Queues};
use crate::background::Background;
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
        self.queues().background()
    }

    /// Sets whether the hold [stays](super::hold::LocalHold::stay) until it is released. The share has not ended.
    pub(super) fn stay(&self, stays: bool) {
        self.queues().with(&self.live.hold.key, |state| {
            if let Some(hold) = state.hold_of(&self.live) {
                hold.stay(stays);
            }
        });
    }

    fn queues(&self) -> &Arc<Queues> {
        let queues = self.queues.as_ref();
        queues.expect("the share has not ended")
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
        self.live.see_lost() || self.is_over(Instant::now())
    }

    /// Ends the share at once. The release returns whether the store carried the hold until now, and the store keeps `record` if
    /// it did.
    ///
    /// # Errors
    ///
    /// With a record also `Invalid` if others share the hold: then nothing is recorded.
    pub(crate) fn release(mut self, record: Option<Record>, now: Instant) -> ShareRelease {
        let is_over = self.is_over(now);
        let record = record.filter(|_| !is_over);
        let records = record.is_some();
        // A hold that leaves a record is not handed over.
        match self.depart(!records, now) {
            Ok(departed) => ShareRelease::begin(departed, record).lost_if(is_over),
            Err(_) if is_over || self.live.was_seen_lost() => {
                ShareRelease::done(Err(LockError::Lost))
            }
            Err(_) if records => ShareRelease::done(Err(LockError::invalid(
                "the hold is shared: only its last share can leave a record",
            ))),
            Err(queues) if queues.background().holds_now(&self.live) => ShareRelease::done(Ok(())),
            Err(queues) => {
                let lives = [self.live.clone()];
                ShareRelease::boxed(
                    lives,
                    async move { queues.background().check(&self.live).await },
                )
            }
        }
    }

    /// Whether its own limit is reached.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.limit().is_some_and(|limit| now >= limit)
    }

    /// Ends all shares at once. The release returns whether the store carried every hold until now. Dropping it continues it
    /// in the background. The caller bounds the wait.
    pub(crate) fn release_all(
        shares: impl IntoIterator<Item = Self>,
        now: Instant,
    ) -> ShareRelease {
        let (mut last, mut shared) = (Vec::new(), Vec::new());
        let mut background = None;
        let (mut lives, mut is_over) = (Vec::new(), false);
        for mut share in shares {
            is_over |= share.is_over(now);
            lives.push(share.live.clone());
            background.get_or_insert_with(|| share.background().clone());
            match share.depart(true, now) {
                Ok(departed) => last.push(departed),
                Err(_) => shared.push(share),
            }
        }
        let Some(background) = background else {
            return ShareRelease::done(Ok(()));
        };
        // Holds that all continue need no job.
        let release = (!last.is_empty()).then(|| background.clone().end_all(last));
        let release = async {
            match release {
                Some(release) => release.await,
                None => Ok(()),
            }
        };
        let is_lost = is_over || lives.iter().any(|live| live.was_seen_lost());
        let released = async move {
            let checks = shared.iter().map(|share| background.check(&share.live));
            let (released, checked) = tokio::join!(release, join_all(checks));
            worst(checked.into_iter().chain([released]))
        };
        ShareRelease::boxed(lives, released).lost_if(is_lost)
    }

    /// Ends the share in this process. Returns the hold if this was its last share, otherwise the queues.
    fn depart(&mut self, pass_on: bool, now: Instant) -> Result<Departed, Arc<Queues>> {
        let queues = self.queues.take().expect("a share ends once");
        let key = &self.live.hold.key;
        // A request that got the hold now would hold the key within the minimum of this one.
        let pass_on = pass_on && self.live.minimum().is_none();
        let left = queues.with(key, |state| {
            state.leave(&self.live, &self.holder, pass_on, queues.at(now))
        });
        match left {
            Left::LivesOn(effects) => {
                queues.apply(key, effects);
                Err(queues)
            }
            Left::Release(turn) => Ok(Departed {
                queues,
                live: self.live.clone(),
                turn,
            }),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.queues.is_some()
            && let Ok(departed) = self.depart(true, Instant::now())
        {
            // Dropping the release hands it to the background.
            drop(ShareRelease::begin(departed, None));
        }
    }
}
