//! The shares of one guard.

use std::mem;
use std::ops::Deref;
use std::slice;

use tokio::time::Instant;

use super::{Share, ShareRelease};
use crate::error::LockError;
use crate::store::Record;

/// The shares that one request has taken. If they are dropped, they end together, and their holds are released in few
/// questions.
pub(crate) enum Shares {
    One(Share),
    Several(SharesOfMany),
}

/// Any number of shares.
#[derive(Default)]
pub(crate) struct SharesOfMany(Vec<Share>);

impl Shares {
    /// Has the store keep the holds until `until` at least, also when they are released before.
    ///
    /// # Errors
    ///
    /// `Lost` if it does not carry all of them; `Unavailable`, also if it does not answer in time.
    ///
    /// # Cancel safety
    ///
    /// The question continues in the background; the shares do not wait for it.
    pub(crate) async fn keep_until(&self, until: Instant) -> Result<(), LockError> {
        // Until the answer, the store may keep the holds for that long, and the minimum is not set: a request that is dropped
        // meanwhile releases them, because a next holder that dies would leave its key taken.
        self.iter().for_each(|share| share.stay(true));
        let lives = self.iter().map(Share::live);
        let extended = self[0].background().extend(lives, until);
        extended.await?;
        let mut lives = self.iter().map(Share::live);
        let all = lives.all(|live| live.keep_until(until));
        if !all {
            // The others are released as well, and not handed over: the store keeps them for the minimum.
            self.iter().for_each(|share| share.live().forget_minimum());
            return Err(LockError::Lost);
        }
        self.iter().for_each(|share| share.stay(false));
        Ok(())
    }

    /// Ends the shares. The release returns whether the store carried every hold until now, and the store keeps `record` if it
    /// did.
    ///
    /// # Errors
    ///
    /// With a record also `Invalid` if others share the hold, or there is more than one key: then nothing is recorded.
    pub(crate) fn release(self, record: Option<Record>, now: Instant) -> ShareRelease {
        match (self, record) {
            (Self::One(only), record) => only.release(record, now),
            (Self::Several(mut all), None) => Share::release_all(mem::take(&mut all.0), now),
            (Self::Several(_), Some(_)) => {
                ShareRelease::done(Err(LockError::invalid("a record belongs to one key")))
            }
        }
    }
}

impl SharesOfMany {
    pub(crate) fn push(&mut self, share: Share) {
        self.0.push(share);
    }
}

impl From<Share> for Shares {
    fn from(share: Share) -> Self {
        Self::One(share)
    }
}

impl From<SharesOfMany> for Shares {
    fn from(mut shares: SharesOfMany) -> Self {
        match shares.0.len() {
            1 => shares.0.pop().map_or(Self::Several(shares), Self::One),
            _ => Self::Several(shares),
        }
    }
}

impl FromIterator<Share> for SharesOfMany {
    fn from_iter<T: IntoIterator<Item = Share>>(shares: T) -> Self {
        Self(shares.into_iter().collect())
    }
}

impl Deref for Shares {
    type Target = [Share];

    fn deref(&self) -> &[Share] {
        match self {
            Self::One(share) => slice::from_ref(share),
            Self::Several(all) => &all.0,
        }
    }
}

impl Deref for SharesOfMany {
    type Target = [Share];

    fn deref(&self) -> &[Share] {
        &self.0
    }
}

impl Drop for SharesOfMany {
    fn drop(&mut self) {
        if self.0.len() > 1 {
            drop(Share::release_all(mem::take(&mut self.0), Instant::now()));
        }
    }
}
