//! Several keys in one request: all of them, in rounds. A round waits for the key that is in use by [`LockClient::take`].

use std::slice;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::LockClient;
use super::attempt::AttemptGuard;
use super::question::{Reply, Wanted};
use super::wait::{Failures, Wait, answered_late, over};
use crate::error::{LockError, StoreErrorKind};
use crate::lock::{LockKey, LockMode};
use crate::queue::{Decision, Share, SharesOfMany, Terms};

/// How often a request asks for all keys at once before it takes them in order. Between the questions it waits for one key
/// without holding another.
const POLITE_ROUNDS: usize = 4;

/// The keys of a request, in order and without duplicates.
pub(super) struct AllOf<'a> {
    pub(super) keys: &'a [(LockKey, LockMode)],
    pub(super) terms: &'a Terms,
    pub(super) wait: Wait,
}

/// The result of an attempt to take all keys.
enum Tried {
    Taken(SharesOfMany),
    /// One key is in use.
    Blocked {
        index: usize,
        retry_after: Option<Duration>,
    },
}

impl LockClient {
    /// Takes every key.
    ///
    /// First it asks for all keys in one question. If a key is in use, the request waits for that key alone and holds none of the
    /// others meanwhile, so that no other request waits for a free key because of one in use. When it has that key, it asks for
    /// the rest at once. After a few such rounds it takes one key after the other, in order, so that it cannot starve. A request
    /// that waits then holds only keys that come earlier in the order, so there is no deadlock.
    pub(super) async fn take_all(&self, all: AllOf<'_>) -> Result<SharesOfMany, LockError> {
        let mut failures = Failures::default();
        let mut blocked = None;
        let mut hint = None;
        for round in 0.. {
            let taken = match round < POLITE_ROUNDS && all.keys.len() > 1 {
                true => self.take_at_once(&all, blocked).await,
                false => self.take_in_order(&all).await,
            };
            match taken {
                // The first may have been lost while the request waited for the last.
                Ok(Tried::Taken(shares)) if !shares.iter().any(Share::is_lost) => {
                    return Ok(shares);
                }
                Ok(Tried::Taken(_)) => {
                    if all.wait.is_one_try() || all.wait.is_over() {
                        return Err(LockError::Busy { retry_after: hint });
                    }
                }
                Ok(Tried::Blocked { index, retry_after }) => {
                    failures = Failures::default();
                    blocked = Some(index);
                    hint = retry_after;
                    if all.wait.is_one_try() {
                        return Err(LockError::Busy { retry_after: hint });
                    }
                }
                // A key was in use, and the store answered during the wait.
                Err(LockError::Unavailable(error))
                    if blocked.is_some()
                        && error.kind() == StoreErrorKind::Unanswered
                        && all.wait.is_over() =>
                {
                    return Err(LockError::Busy { retry_after: hint });
                }
                Err(LockError::Unavailable(error)) if round < POLITE_ROUNDS => {
                    if !failures.allow_another(&error, all.wait).await {
                        return Err(error.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        unreachable!("a round is over when the wait is")
    }

    /// Takes the key that was in use, then all others at once.
    async fn take_at_once(
        &self,
        all: &AllOf<'_>,
        blocked: Option<usize>,
    ) -> Result<Tried, LockError> {
        let mut shares: Vec<Option<Share>> = all.keys.iter().map(|_| None).collect();
        if let Some(index) = blocked {
            shares[index] = Some(self.take_one_of_all(all, index).await?);
        }
        let mut attempts = AttemptGuard::new(self, Wanted::All, Instant::now());
        let mut asked = Vec::with_capacity(all.keys.len());
        for (index, (key, mode)) in all.keys.iter().enumerate() {
            if shares[index].is_some() {
                continue;
            }
            let terms = all.terms.in_mode(*mode).impatient();
            match self.inner.queues.enter(key, &terms, Instant::now()) {
                Ok(Decision::Grant(share)) => shares[index] = Some(share),
                // The owner has a write on this key: its read is granted under the id of the write.
                Ok(Decision::Ask(turn)) if turn.nested().is_some() => {
                    drop(turn);
                    shares[index] = Some(self.take_one_of_all(all, index).await?);
                }
                Ok(Decision::Ask(turn)) => {
                    attempts.add(key, &terms, turn);
                    asked.push(index);
                }
                Ok(Decision::Wait(_)) => unreachable!("it does not wait"),
                Err(LockError::Busy { retry_after }) => {
                    return Ok(Tried::Blocked { index, retry_after });
                }
                Err(error) => return Err(error),
            }
        }
        if !attempts.is_empty() {
            let answer = timeout_at(all.wait.until, attempts.ask(Instant::now())).await;
            match answer.map_err(|_| over(None))?? {
                Reply::Granted(granted) => {
                    let granted = attempts.granted(granted, all.terms);
                    let granted = granted.ok_or_else(answered_late)?;
                    for (index, share) in asked.into_iter().zip(granted) {
                        shares[index] = Some(share);
                    }
                }
                Reply::Refused { index, retry_after } => {
                    return Ok(Tried::Blocked {
                        index: asked[index],
                        retry_after: Some(retry_after),
                    });
                }
            }
        }
        let shares: Option<SharesOfMany> = shares.into_iter().collect();
        Ok(Tried::Taken(shares.expect("the store granted every key")))
    }

    async fn take_in_order(&self, all: &AllOf<'_>) -> Result<Tried, LockError> {
        let mut shares = SharesOfMany::default();
        for index in 0..all.keys.len() {
            shares.push(self.take_one_of_all(all, index).await?);
        }
        Ok(Tried::Taken(shares))
    }

    async fn take_one_of_all(&self, all: &AllOf<'_>, index: usize) -> Result<Share, LockError> {
        let (key, mode) = &all.keys[index];
        let terms = all.terms.in_mode(*mode);
        self.take(slice::from_ref(key), None, &terms, all.wait, Instant::now())
            .await
    }
}
