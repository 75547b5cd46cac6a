//! The decision about an attempt.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::error::{StoreError, StoreErrorKind};
use crate::store::other_limit;

/// The decision about an attempt.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) enum Verdict {
    Granted,
    /// Never zero, because the obstacle is live.
    Refused {
        retry_after: Duration,
    },
    Withdrawn,
    Conflict,
    /// The permits that are held have another limit than the attempt names.
    OtherLimit(NonZeroU32),
}

impl Verdict {
    /// The longest time for which it is refused; `None` if it is granted.
    pub(in super::super) fn refusal(self) -> Result<Option<Duration>, StoreError> {
        match self {
            Self::Granted => Ok(None),
            Self::Refused { retry_after } => Ok(Some(retry_after)),
            Self::Withdrawn => Err(StoreError::new(
                StoreErrorKind::Refused,
                "the attempt was withdrawn before it arrived",
            )),
            Self::Conflict => Err(StoreError::new(
                StoreErrorKind::Conflict,
                "the key is held by a lock of another family",
            )),
            Self::OtherLimit(limit) => Err(other_limit(limit.into())),
        }
    }
}
