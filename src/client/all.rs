//! Several keys in one request: all of them, in rounds. A round waits for the key that is in use by [`LockClient::take`].

use std::time::Duration;

use tokio::time::Instant;

use super::LockClient;
use super::attempt::AttemptGuard;
use super::question::{Reply, Wanted};
use super::wait::{Failures, Wait, answered_late, over};
use crate::error::{LockError, StoreErrorKind};
use crate::lock::{LockKey, LockMode};
use crate::queue::{Decision, Share, SharesOfMany, Terms};
use crate::store::Want;

/// How often a request asks for all keys at once before it takes them in order. Between the questions it waits for one key
/// without holding another.
const POLITE_ROUNDS: usize = 4;

/// How long a request that holds keys waits for the next one. Then it gives them up for others.
const HOLDS_AND_WAITS: Duration = Duration::from_secs(1);

/// A request for all of several keys.
pub(super) struct AllOf<'a> {
    pub(super) client: &'a LockClient,
    /// In order and without duplicates.
    pub(super) keys: &'a [(&'a LockKey, LockMode)],
    pub(super) terms: &'a Terms,
    pub(super) wait: Wait,
}

/// The key that was in use.
#[derive(Clone, Copy)]
struct Blocked {
    index: usize,
    retry_after: Option<Duration>,
}

impl AllOf<'_> {
    /// Takes every key.
    ///
    /// First it asks for all keys in one question. If a key is in use, the request waits for that key alone and holds none of the
    /// others meanwhile, so that no other request waits for a free key because of one in use. When it has that key, it asks for
    /// the rest at once. After a few such rounds it takes one key after the other, in order, every second round, so that it does not
    /// starve. A request that waits then holds only keys that come earlier in the order, so there is no deadlock, and none of them
    /// for longer than a second.
    pub(super) async fn take(&self) -> Result<SharesOfMany, LockError> {
        let mut failures = Failures::default();
        let mut blocked = None;
        for round in 0.. {
            let is_polite = self.keys.len() > 1 && (round < POLITE_ROUNDS || round % 2 == 1);
            let taken = match is_polite {
                true => self.take_together(blocked).await,
                false => self.take_in_order().await,
            };
            match taken {
                // The first may have been lost while the request waited for the last.
                Ok(Ok(shares)) if !shares.iter().any(Share::is_lost) => return Ok(shares),
                Ok(Ok(_)) => {}
                Ok(Err(key)) => {
                    failures = Failures::default();
                    blocked = Some(key);
                }
                // A key was in use, and the store answered during the wait.
                Err(LockError::Unavailable(error))
                    if blocked.is_some()
                        && error.kind() == StoreErrorKind::Unanswered
                        && self.wait.is_over() => {}
                Err(LockError::Unavailable(error)) if is_polite => {
                    if !failures.allow_another(&error, self.wait).await {
                        return Err(error.into());
                    }
                    continue;
                }
                Err(error) => return Err(error),
            }
            if self.wait.is_one_try() || self.wait.is_over() {
                let retry_after = blocked.and_then(|key| key.retry_after);
                return Err(LockError::Busy { retry_after });
            }
        }
        unreachable!("a round is over when the wait is")
    }

    /// Takes the key that was in use, then all others at once.
    async fn take_together(
        &self,
        blocked: Option<Blocked>,
    ) -> Result<Result<SharesOfMany, Blocked>, LockError> {
        let mut shares: Vec<Option<Share>> = self.keys.iter().map(|_| None).collect();
        if let Some(Blocked { index, .. }) = blocked {
            shares[index] = Some(self.take_one(index, self.wait).await?);
        }
        let mut attempts =
            AttemptGuard::new(self.client, Wanted::Several(Want::All), Instant::now());
        let mut asked = Vec::with_capacity(self.keys.len());
        for (index, (key, mode)) in self.keys.iter().enumerate() {
            if shares[index].is_some() {
                continue;
            }
            let terms = self.terms.in_mode(*mode).into_owned().impatient();
            match self.client.inner.queues.enter(key, &terms, Instant::now()) {
                Ok(Decision::Grant(share)) => shares[index] = Some(share),
                // The owner has a write on this key: its read is granted under the id of the write.
                Ok(Decision::Ask(turn)) if turn.nested().is_some() => {
                    drop(turn);
                    shares[index] = Some(self.take_one(index, self.wait).await?);
                }
                Ok(Decision::Ask(turn)) => {
                    attempts.add(key, &terms, turn);
                    asked.push(index);
                }
                Ok(Decision::Wait(_)) => unreachable!("it does not wait"),
                Err(LockError::Busy { retry_after }) => {
                    return Ok(Err(Blocked { index, retry_after }));
                }
                Err(error) => return Err(error),
            }
        }
        if !attempts.is_empty() {
            let reply = attempts.ask(Instant::now(), self.wait.until).await;
            let granted = match reply.map_err(|_| over(None))?? {
                Reply::Granted(granted) => attempts.granted(granted, self.terms),
                Reply::Refused { index, retry_after } => {
                    self.client.inner.queues.background().start_stranded();
                    return Ok(Err(Blocked {
                        index: asked[index],
                        retry_after: Some(retry_after),
                    }));
                }
            };
            let granted = granted.ok_or_else(answered_late)?;
            for (index, share) in asked.into_iter().zip(granted) {
                shares[index] = Some(share);
            }
        }
        let shares: Option<SharesOfMany> = shares.into_iter().collect();
        Ok(Ok(shares.expect("the store granted every key")))
    }

    async fn take_in_order(&self) -> Result<Result<SharesOfMany, Blocked>, LockError> {
        let mut shares = SharesOfMany::default();
        for index in 0..self.keys.len() {
            let wait = match index {
                0 => self.wait,
                _ => self.wait.no_later_than(Instant::now() + HOLDS_AND_WAITS),
            };
            let retry_after = match self.take_one(index, wait).await {
                Ok(share) => {
                    shares.push(share);
                    continue;
                }
                Err(LockError::Busy { retry_after }) if !self.wait.is_over() => retry_after,
                // So short a wait may end before the store has said who holds the key.
                Err(LockError::Unavailable(error))
                    if index > 0
                        && error.kind() == StoreErrorKind::Unanswered
                        && !self.wait.is_over() =>
                {
                    None
                }
                Err(error) => return Err(error),
            };
            return Ok(Err(Blocked { index, retry_after }));
        }
        Ok(Ok(shares))
    }

    /// Waits for one of the keys.
    async fn take_one(&self, index: usize, wait: Wait) -> Result<Share, LockError> {
        let keys = &self.keys[index..=index];
        self.client
            .take(keys, None, self.terms, wait, Instant::now())
            .await
    }
}
