//! The shares of one guard.

use std::mem;
use std::ops::Deref;

use futures_util::future::join_all;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::Share;
use crate::error::LockError;
use crate::keeper;
use crate::store::Record;

/// The shares that one request has taken. If they are dropped, they end together, and their holds are released in few
/// questions.
#[derive(Default)]
pub(crate) struct Shares {
    shares: SmallVec<[Share; 1]>,
    /// Until when the store keeps the holds at least; `None`: until they are released.
    until: Option<Instant>,
}

impl Shares {
    pub(crate) fn push(&mut self, share: Share) {
        self.shares.push(share);
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
    pub(crate) async fn keep_until(&mut self, until: Instant) -> Result<(), LockError> {
        let lives = self.shares.iter().map(Share::live);
        let extended = self.shares[0].keeper().extend(lives, until);
        extended.in_time().await?;
        self.until = Some(until);
        Ok(())
    }

    /// Ends the shares, and returns whether the store carried every hold until now.
    ///
    /// # Cancel safety
    ///
    /// The shares end at the first poll; a release that has begun continues in the background.
    pub(crate) async fn release(mut self) -> Result<(), LockError> {
        if let Some(until) = self.resting() {
            let shares = mem::take(&mut self.shares);
            let resting = shares.into_iter().map(|share| share.rest(until));
            return keeper::worst(Box::pin(join_all(resting)).await);
        }
        match self.only() {
            Some(only) => only.release().await,
            None => Share::release_all(mem::take(&mut self.shares)).await,
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

    /// The end of the minimum, if that is still to come. It is asked once.
    fn resting(&mut self) -> Option<Instant> {
        self.until.take().filter(|until| *until > Instant::now())
    }

    fn only(&mut self) -> Option<Share> {
        match self.shares.len() {
            1 => self.shares.pop(),
            _ => None,
        }
    }
}

impl From<Share> for Shares {
    fn from(share: Share) -> Self {
        Self {
            shares: SmallVec::from_buf([share]),
            until: None,
        }
    }
}

impl FromIterator<Share> for Shares {
    fn from_iter<T: IntoIterator<Item = Share>>(shares: T) -> Self {
        Self {
            shares: shares.into_iter().collect(),
            until: None,
        }
    }
}

impl Deref for Shares {
    type Target = [Share];

    fn deref(&self) -> &[Share] {
        &self.shares
    }
}

impl Drop for Shares {
    fn drop(&mut self) {
        if let Some(until) = self.resting() {
            for share in mem::take(&mut self.shares) {
                share.leave_until(until);
            }
        }
        if self.shares.len() > 1 {
            Share::drop_all(mem::take(&mut self.shares));
        }
    }
}
