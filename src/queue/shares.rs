//! The shares of one guard.

use std::mem;
use std::ops::Deref;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::Share;
use crate::error::LockError;
use crate::store::Record;

/// The shares that one request has taken. If they are dropped, they end together, and their holds are released in few
/// questions.
#[derive(Default)]
pub(crate) struct Shares(SmallVec<[Share; 1]>);

impl Shares {
    pub(crate) fn push(&mut self, share: Share) {
        self.0.push(share);
    }

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
        let lives = self.0.iter().map(Share::live);
        let extended = self.0[0].background().extend(lives, until);
        extended.in_time().await?;
        // Only after the answer: a request that is dropped before it passes its hold on without a minimum.
        let mut lives = self.0.iter().map(Share::live);
        let all = lives.all(|live| live.keep_until(until));
        all.then_some(()).ok_or(LockError::Lost)
    }

    /// Ends the shares, and returns whether the store carried every hold until now.
    ///
    /// # Cancel safety
    ///
    /// The shares end at the first poll; a release that has begun continues in the background.
    pub(crate) async fn release(mut self) -> Result<(), LockError> {
        match self.only() {
            Some(only) => only.release().await,
            None => Box::pin(Share::release_all(mem::take(&mut self.0))).await,
        }
    }

    /// Ends the last share. The store keeps `record` if it carried the hold until now.
    ///
    /// # Errors
    ///
    /// Also `Invalid` if others share the hold, or there is more than one key: then nothing is recorded.
    pub(crate) async fn release_recording(mut self, record: Record) -> Result<(), LockError> {
        match self.only() {
            Some(only) => only.release_recording(record).await,
            None => Err(LockError::invalid("a record belongs to one key")),
        }
    }

    fn only(&mut self) -> Option<Share> {
        match self.0.len() {
            1 => self.0.pop(),
            _ => None,
        }
    }
}

impl From<Share> for Shares {
    fn from(share: Share) -> Self {
        Self(SmallVec::from_buf([share]))
    }
}

impl FromIterator<Share> for Shares {
    fn from_iter<T: IntoIterator<Item = Share>>(shares: T) -> Self {
        Self(shares.into_iter().collect())
    }
}

impl Deref for Shares {
    type Target = [Share];

    fn deref(&self) -> &[Share] {
        &self.0
    }
}

impl Drop for Shares {
    fn drop(&mut self) {
        if self.0.len() > 1 {
            Share::drop_all(mem::take(&mut self.0));
        }
    }
}
