//! Several attempts as one question.

use std::collections::HashSet;
use std::time::Duration;

use super::{Attempt, LockStore, Outcome};
use crate::error::{StoreError, StoreErrorKind};
use crate::lock::FencingToken;

/// What the store answers to several attempts of which all must be granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllOutcome {
    /// Every hold is the caller's, each with the token it asked for.
    Granted(Vec<Option<FencingToken>>),
    /// None is.
    Refused {
        /// The first attempt that stood back.
        index: usize,
        /// When asking again may succeed without a wake-up.
        retry_after: Duration,
    },
}

/// What the store answers to several attempts of which one suffices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnyOutcome {
    /// One hold is the caller's.
    Granted {
        /// Which.
        index: usize,
        /// With the token it asked for.
        token: Option<FencingToken>,
    },
    /// None is.
    Refused {
        /// When asking again may succeed without a wake-up.
        retry_after: Duration,
    },
}

/// Whether no key is asked for twice. Only then does the answer to one attempt not depend on that to another.
pub(super) fn are_apart(attempts: &[Attempt]) -> bool {
    let keys: HashSet<_> = attempts.iter().map(|attempt| &attempt.hold.key).collect();
    keys.len() == attempts.len()
}

/// [`LockStore::acquire_all`] for a store that cannot do it at once.
pub(super) async fn all<S: LockStore + ?Sized>(
    store: &S,
    attempts: &[Attempt],
) -> Result<AllOutcome, StoreError> {
    let mut tokens = Vec::with_capacity(attempts.len());
    for (index, attempt) in attempts.iter().enumerate() {
        let answer = store.acquire(attempt).await;
        if let Ok(Outcome::Granted { token }) = answer {
            tokens.push(token);
            continue;
        }
        for granted in &attempts[..index] {
            // What cannot be given back now is for the caller to withdraw.
            store
                .release(&granted.hold)
                .await
                .map_err(|error| StoreError::new(StoreErrorKind::Unanswered, error))?;
        }
        return match answer {
            Ok(Outcome::Refused { retry_after }) => Ok(AllOutcome::Refused { index, retry_after }),
            Ok(Outcome::Granted { .. }) => unreachable!("a grant goes on with the next"),
            Err(error) => Err(error),
        };
    }
    Ok(AllOutcome::Granted(tokens))
}

/// [`LockStore::acquire_any`] for a store that cannot do it at once.
pub(super) async fn any<S: LockStore + ?Sized>(
    store: &S,
    attempts: &[Attempt],
) -> Result<AnyOutcome, StoreError> {
    let mut soonest = None;
    let mut failure = None;
    for (index, attempt) in attempts.iter().enumerate() {
        match store.acquire(attempt).await {
            Ok(Outcome::Granted { token }) => return Ok(AnyOutcome::Granted { index, token }),
            Ok(Outcome::Refused { retry_after }) => {
                soonest = Some(soonest.map_or(retry_after, |soonest| retry_after.min(soonest)));
            }
            // Had no effect. The others may live in another part of the store, which can serve.
            Err(error)
                if matches!(
                    error.kind(),
                    StoreErrorKind::Unreachable | StoreErrorKind::Transient
                ) =>
            {
                failure = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    match (soonest, failure) {
        (None, Some(error)) => Err(error),
        (soonest, _) => Ok(AnyOutcome::Refused {
            retry_after: soonest.unwrap_or(Duration::MAX),
        }),
    }
}
