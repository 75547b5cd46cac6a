//! Several attempts as one question, for a store that cannot answer them in one step.

use std::collections::HashSet;
use std::future::Future;
use std::time::Duration;

use futures_util::future::join_all;

use super::{
    Attempt, Grant, HoldStatus, LockStore, Outcome, Release, Released, SeveralOutcome, Want,
};
use crate::error::{StoreError, StoreErrorKind};

/// Whether no key occurs twice. Only then the answers to the attempts are independent.
pub(super) fn are_apart(attempts: &[Attempt]) -> bool {
    let keys: HashSet<_> = attempts.iter().map(|attempt| &attempt.hold.key).collect();
    keys.len() == attempts.len()
}

/// [`LockStore::acquire_several`], one attempt after the other.
pub(super) async fn one_by_one<S: LockStore + ?Sized>(
    store: &S,
    attempts: &[Attempt],
    want: Want,
) -> Result<SeveralOutcome, StoreError> {
    match want {
        Want::All => all(store, attempts).await,
        Want::Any => any(store, attempts).await,
    }
}

async fn all<S: LockStore + ?Sized>(
    store: &S,
    attempts: &[Attempt],
) -> Result<SeveralOutcome, StoreError> {
    let mut grants = Vec::with_capacity(attempts.len());
    for (index, attempt) in attempts.iter().enumerate() {
        let retry_after = match store.acquire(attempt).await {
            Ok(Outcome::Granted { token }) => {
                grants.push(Grant { index, token });
                continue;
            }
            Ok(Outcome::Refused { retry_after }) => Ok(retry_after),
            Err(error) => Err(error),
        };
        give_back(store, &attempts[..index]).await?;
        return retry_after.map(|retry_after| SeveralOutcome::Refused {
            index: Some(index),
            retry_after,
        });
    }
    Ok(SeveralOutcome::Granted(grants))
}

/// Releases what was granted. The caller withdraws what cannot be released now.
async fn give_back<S: LockStore + ?Sized>(
    store: &S,
    granted: &[Attempt],
) -> Result<(), StoreError> {
    let granted = granted.iter().map(|attempt| attempt.hold.clone());
    let releases: Vec<_> = granted.map(Release::new).collect();
    if releases.is_empty() {
        return Ok(());
    }
    let released = store.release(&releases).await;
    released
        .map(drop)
        .map_err(|error| StoreError::new(StoreErrorKind::Unanswered, error))
}

async fn any<S: LockStore + ?Sized>(
    store: &S,
    attempts: &[Attempt],
) -> Result<SeveralOutcome, StoreError> {
    let mut soonest = None;
    let mut failure = None;
    for (index, attempt) in attempts.iter().enumerate() {
        match store.acquire(attempt).await {
            Ok(Outcome::Granted { token }) => {
                return Ok(SeveralOutcome::Granted(vec![Grant { index, token }]));
            }
            Ok(Outcome::Refused { retry_after }) => {
                soonest = Some(soonest.map_or(retry_after, |soonest| retry_after.min(soonest)));
            }
            // The attempt had no effect. The others may belong to another partition, which may answer.
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
        (soonest, _) => Ok(SeveralOutcome::Refused {
            index: None,
            retry_after: soonest.unwrap_or(Duration::MAX),
        }),
    }
}

/// Combines the answers about each hold into the answer to a release of several.
pub(super) async fn released(
    answers: impl IntoIterator<Item = impl Future<Output = Result<Released, StoreError>>>,
) -> Result<Vec<Released>, StoreError> {
    known(join_all(answers).await)
}

/// The status of several holds after their release. It fails if every release failed.
pub(super) fn known(
    answers: Vec<Result<Released, StoreError>>,
) -> Result<Vec<Released>, StoreError> {
    if !answers.is_empty() && answers.iter().all(Result::is_err) {
        return answers.into_iter().collect();
    }
    let answers = answers.into_iter();
    let known = answers.map(|answer| answer.unwrap_or_else(|_| HoldStatus::Unknown.into()));
    Ok(known.collect())
}
