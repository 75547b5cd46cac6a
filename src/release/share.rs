//! A share in a hold, and its release.

use std::ops::Deref;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::time::{Instant, timeout};

use super::Core;
use super::ending::Ending;
use super::releasing::{ShareRelease, Work, some_at_a_time};
use crate::error::{LockError, worst};
use crate::hold::Held;
use crate::limits::ANSWER_TIME;
use crate::lock::{FencingToken, Owner};
use crate::store::{Record, undecided};
use crate::table::{NewShare, ShareEnd};

/// A share in a hold: the duty to end it, from the grant to the end. The last share of a hold releases it.
pub(crate) struct Share {
    /// `None` once the share has ended.
    of: Option<(Arc<Core>, Arc<Held>)>,
    owner: Option<Owner>,
}

/// What a share leaves when it ends.
enum EndedShare {
    /// The hold goes on, with other shares or until its minimum is over.
    Shared(Arc<Core>, Arc<Held>),
    /// It must be released.
    Last(Ending),
}

impl Share {
    pub(super) fn new(core: Arc<Core>, grant: NewShare) -> Self {
        Self {
            of: Some((core, grant.held)),
            owner: grant.owner,
        }
    }

    fn of(&self) -> &(Arc<Core>, Arc<Held>) {
        self.of.as_ref().expect("the share has not ended")
    }

    pub(crate) fn held(&self) -> &Arc<Held> {
        &self.of().1
    }

    /// That of its client.
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.of().0
    }

    /// Only a hold without shares is handed over, so this is the token of this share.
    pub(crate) fn token(&self) -> Option<FencingToken> {
        self.held().token()
    }

    /// Ends the share at once. The release returns whether the store carried the hold until now, and the store keeps `record` if
    /// it did.
    ///
    /// # Errors
    ///
    /// With a record also `Invalid` if others share the hold: then nothing is recorded.
    pub(crate) fn release(mut self, record: Option<Record>, now: Instant) -> ShareRelease {
        let record = record.filter(|_| !self.held().is_lost(now));
        let records = record.is_some();
        match self.end(!records, now) {
            EndedShare::Last(ending) => ending.begin(record),
            EndedShare::Shared(_, held) if held.is_lost(now) => {
                ShareRelease::done(Err(LockError::Lost))
            }
            EndedShare::Shared(..) if records => ShareRelease::done(Err(LockError::invalid(
                "the hold is shared: only its last share can leave a record",
            ))),
            EndedShare::Shared(core, held) => {
                let last = held.latest_question();
                core.check(&held);
                ShareRelease::confirmed(&held, last)
            }
        }
    }

    /// Ends all shares at once; so many holds of a partition are released at a time. The release returns whether the store carried
    /// every hold until now.
    pub(crate) fn release_all(shares: SmallVec<[Self; 1]>, now: Instant) -> ShareRelease {
        let Some(core) = shares.first().map(|share| share.core().clone()) else {
            return ShareRelease::done(Ok(()));
        };
        let holds = shares.iter().map(|share| share.held().clone()).collect();
        let partitions = core
            .store
            .by_partition(shares, |share| &share.held().hold.key);
        let releases = partitions.into_values().map(|shares| {
            let releases = shares.into_iter().map(|share| share.release(None, now));
            releases.collect::<Vec<_>>()
        });
        let releases: Vec<_> = releases.collect();
        let released = async { worst(some_at_a_time(releases).await) };
        ShareRelease::new(Work::Waits(Box::pin(released), holds))
    }

    /// Ends the share in this process.
    fn end(&mut self, pass_on: bool, now: Instant) -> EndedShare {
        let (core, held) = self.of.take().expect("the share has not ended");
        // Before the hold leaves the table: a shutdown that does not find it there waits for its release.
        let counted = core.spawner.tracker.token();
        let ended = core.event(&held.hold.key, now, |key| {
            key.ended(&held, self.owner.as_ref(), pass_on)
        });
        match ended.unwrap_or_default() {
            ShareEnd::GoesOn => EndedShare::Shared(core, held),
            ShareEnd::Release { awaited } => {
                EndedShare::Last(Ending::new(core, held, awaited, now, counted))
            }
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.of.is_some()
            && let EndedShare::Last(ending) = self.end(true, Instant::now())
        {
            ending.in_background();
        }
    }
}

/// The shares that one request has taken.
pub(crate) struct Shares(SmallVec<[Share; 1]>);

impl Shares {
    pub(crate) fn new(shares: SmallVec<[Share; 1]>) -> Self {
        Self(shares)
    }

    pub(crate) fn push(&mut self, share: Share) {
        self.0.push(share);
    }

    pub(crate) fn is_any_lost(&self, now: Instant) -> bool {
        self.iter().any(|share| share.held().is_lost(now))
    }

    /// Has the store keep the holds until `until` at least, also after their release and without this process.
    ///
    /// # Errors
    ///
    /// `Lost` if it does not carry all of them; `Unavailable`, also if it does not answer in time.
    ///
    /// # Cancel safety
    ///
    /// The question continues in the background.
    pub(crate) async fn keep_until(&self, until: Instant) -> Result<(), LockError> {
        let core = self[0].core();
        // Not handed over from here on: the next holder could die, and leave its key taken until then.
        let now = Instant::now();
        for held in self.iter().map(Share::held) {
            core.event(&held.hold.key, now, |key| key.forbid_handover(held));
        }
        let holds: Vec<_> = self.iter().map(|share| share.held().clone()).collect();
        let asking = core.kept(core.clone().extend(holds, until));
        let kept = timeout(ANSWER_TIME, asking).await;
        kept.unwrap_or_else(|_| Err(undecided().into()))?;
        let held = self.iter().filter(|share| share.held().keep_until(until));
        match held.count() == self.len() {
            true => Ok(()),
            false => Err(LockError::Lost),
        }
    }

    /// Ends the shares. The release returns whether the store carried every hold until now, and the store keeps `record` if it did.
    ///
    /// # Errors
    ///
    /// With a record also `Invalid` if others share the hold, or there is more than one key: then nothing is recorded.
    pub(crate) fn release(mut self, record: Option<Record>, now: Instant) -> ShareRelease {
        let mut shares = std::mem::take(&mut self.0);
        match (shares.len(), record) {
            (1, record) => shares.pop().expect("there is one").release(record, now),
            (_, None) => Share::release_all(shares, now),
            (_, Some(_)) => {
                ShareRelease::done(Err(LockError::invalid("a record belongs to one key")))
            }
        }
    }
}

impl Deref for Shares {
    type Target = [Share];

    fn deref(&self) -> &[Share] {
        &self.0
    }
}
