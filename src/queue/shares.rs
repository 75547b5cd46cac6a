//! The shares of one guard.

use std::mem;
use std::ops::Deref;

use smallvec::SmallVec;

use super::Share;
use crate::error::LockError;
use crate::store::Record;

/// The shares that one request has taken. Dropped, they leave together: what ends by that is released in few questions.
#[derive(Default)]
pub(crate) struct Shares(SmallVec<[Share; 1]>);

impl Shares {
    pub(crate) fn push(&mut self, share: Share) {
        self.0.push(share);
    }

    /// Leaves, and says whether the store carried every hold until now.
    ///
    /// # Cancel safety
    ///
    /// Leaving happens at the first poll; a release that was begun is finished in the background.
    pub(crate) async fn release(mut self) -> Result<(), LockError> {
        match self.only() {
            Some(only) => only.release().await,
            None => Share::release_all(mem::take(&mut self.0)).await,
        }
    }

    /// Leaves as the last one, and has the store remember `record` if it carried the hold until now.
    ///
    /// # Errors
    ///
    /// Also `Invalid` if others share the hold, or there is more than one key: then nothing is remembered.
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
