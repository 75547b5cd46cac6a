//! A question to the store whether it grants attempts, and the answer.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::error::StoreError;
use crate::store::{Answer, Attempt, DynStore, Grant, Outcome, SeveralOutcome, Want};

/// How many of its attempts a request needs.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted {
    /// The only one. With patience, the store records it as a waiter.
    One { patience: Option<Duration> },
    /// Some of several. None of them waits in the store.
    Several(Want),
}

/// A question under way.
pub(super) enum Asking {
    One(Answer<Outcome, Attempt>),
    Several(Answer<SeveralOutcome>),
}

impl Asking {
    pub(super) fn begin<'a>(
        store: &Arc<dyn DynStore>,
        mut attempts: impl Iterator<Item = &'a Attempt>,
        want: Wanted,
    ) -> Self {
        match want {
            Wanted::One { .. } => {
                let only = attempts.next().expect("there is one");
                Self::One(store.acquire(only.clone()))
            }
            Wanted::Several(want) => {
                let attempts = attempts.cloned().collect();
                Self::Several(store.clone().acquire_several(attempts, want))
            }
        }
    }

    /// The answer if it is there already.
    pub(super) fn now(self) -> Result<Result<Reply, StoreError>, Self> {
        match self {
            Self::One(answer) => match answer.now() {
                Ok(outcome) => Ok(outcome.map(Reply::from)),
                Err(answer) => Err(Self::One(answer)),
            },
            Self::Several(answer) => match answer.now() {
                Ok(outcome) => Ok(outcome.map(Reply::from)),
                Err(answer) => Err(Self::Several(answer)),
            },
        }
    }

    pub(super) async fn answer(&mut self) -> Result<Reply, StoreError> {
        match self {
            Self::One(answer) => answer.await.map(Reply::from),
            Self::Several(answer) => answer.await.map(Reply::from),
        }
    }
}

/// The store's answer to the attempts.
pub(super) enum Reply {
    /// The granted attempts, with their tokens, in the order of the attempts.
    Granted(Grants),
    Refused {
        /// The refused attempt of [`Want::All`].
        index: usize,
        retry_after: Duration,
    },
}

pub(super) type Grants = SmallVec<[Grant; 1]>;

impl From<Outcome> for Reply {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Granted { token } => {
                Self::Granted(SmallVec::from_buf([Grant { index: 0, token }]))
            }
            Outcome::Refused { retry_after } => Self::Refused {
                index: 0,
                retry_after,
            },
        }
    }
}

impl From<SeveralOutcome> for Reply {
    fn from(outcome: SeveralOutcome) -> Self {
        match outcome {
            SeveralOutcome::Granted(grants) => Self::Granted(grants.into_iter().collect()),
            SeveralOutcome::Refused { index, retry_after } => Self::Refused {
                index: index.unwrap_or_default(),
                retry_after,
            },
        }
    }
}
