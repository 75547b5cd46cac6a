//! A question to the store whether it grants attempts, and the answer.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::error::StoreError;
use crate::lock::FencingToken;
use crate::store::{self, Answer, Attempt, DynStore, Outcome, SeveralOutcome};

/// How many of its attempts a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The only one. With patience, the store records it as a waiter.
    One { patience: Option<Duration> },
    /// One of them. None of them waits in the store.
    Any,
    /// All of them, or none. None of them waits in the store.
    All,
}

/// A question under way.
pub(super) enum Asking {
    One(Answer<Outcome>),
    Several(Answer<SeveralOutcome>),
}

impl Asking {
    pub(super) fn begin<'a>(
        store: &Arc<dyn DynStore>,
        mut attempts: impl Iterator<Item = &'a Attempt>,
        want: Wanted,
    ) -> Self {
        let store = store.clone();
        match want {
            Wanted::One { .. } => {
                let only = attempts.next().expect("there is one");
                Self::One(store.acquire(only.clone()))
            }
            Wanted::Any => {
                Self::Several(store.acquire_several(attempts.cloned().collect(), store::Want::Any))
            }
            Wanted::All => {
                Self::Several(store.acquire_several(attempts.cloned().collect(), store::Want::All))
            }
        }
    }

    /// The answer if it is there already.
    pub(super) fn now(self, sent: Instant) -> Result<Result<Reply, StoreError>, Self> {
        match self {
            Self::One(answer) => answer
                .now()
                .map(|outcome| Ok(Reply::of_one(outcome?, sent)))
                .map_err(Self::One),
            Self::Several(answer) => answer
                .now()
                .map(|outcome| Ok(Reply::of_several(outcome?, sent)))
                .map_err(Self::Several),
        }
    }

    pub(super) async fn answer(&mut self, sent: Instant) -> Result<Reply, StoreError> {
        Ok(match self {
            Self::One(answer) => Reply::of_one(answer.await?, sent),
            Self::Several(answer) => Reply::of_several(answer.await?, sent),
        })
    }
}

/// The store's answer to the attempts.
pub(super) enum Reply {
    Granted(Granted),
    Refused {
        /// The refused attempt of [`Wanted::All`].
        index: usize,
        retry_after: Duration,
    },
}

/// The granted attempts, with their tokens, in the order of the attempts.
pub(super) struct Granted {
    pub(super) grants: SmallVec<[(usize, Option<FencingToken>); 1]>,
    pub(super) sent: Instant,
}

impl Reply {
    pub(super) fn of_one(outcome: Outcome, sent: Instant) -> Self {
        match outcome {
            Outcome::Granted { token } => Self::Granted(Granted {
                grants: SmallVec::from_buf([(0, token)]),
                sent,
            }),
            Outcome::Refused { retry_after } => Self::Refused {
                index: 0,
                retry_after,
            },
        }
    }

    fn of_several(outcome: SeveralOutcome, sent: Instant) -> Self {
        match outcome {
            SeveralOutcome::Granted(grants) => {
                let grants = grants.into_iter();
                let grants = grants.map(|grant| (grant.index, grant.token)).collect();
                Self::Granted(Granted { grants, sent })
            }
            SeveralOutcome::Refused { index, retry_after } => Self::Refused {
                index: index.unwrap_or_default(),
                retry_after,
            },
        }
    }
}
