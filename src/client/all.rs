//! All of several keys, in rounds.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::{Instant, sleep_until};

use super::acquire::unless_closed;
use super::ticket::Ticket;
use super::wait::Wait;
use crate::backoff::Backoff;
use crate::contend::{Pending, answered_late};
use crate::error::{LockError, StoreErrorKind};
use crate::lock::{LockKey, LockMode};
use crate::release::{Core, Share, Shares};
use crate::store::{Reply, Want};
use crate::table::Terms;

/// How often a request asks for all keys at once before it takes them in order. Between the questions it waits for one key without
/// holding another.
const POLITE_ROUNDS: usize = 4;

/// How long a request that holds keys waits for the next one. Then it gives them up for others.
const HOLDS_AND_WAITS: Duration = Duration::from_secs(1);

/// A request for all of several keys.
pub(super) struct AllOf<'a> {
    pub(super) core: &'a Arc<Core>,
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
    /// the rest at once. After a few such rounds it takes one key after the other, in order, every second round, so that it gets keys that
    /// are seldom free together. A request that waits then holds only keys that come earlier in the order, so there is no deadlock, and
    /// none of them for longer than a second.
    pub(super) async fn take(&self) -> Result<Shares, LockError> {
        let mut blocked = None;
        let mut failed = false;
        let mut backoff = Backoff::STORE;
        for round in 0.. {
            let is_polite = self.keys.len() > 1 && (round < POLITE_ROUNDS || round % 2 == 1);
            let taken = match is_polite {
                true => self.take_together(blocked).await,
                false => self.take_in_order().await,
            };
            match taken {
                // The first may have been lost while the request waited for the last.
                Ok(Ok(shares)) if !shares.is_any_lost(Instant::now()) => return Ok(shares),
                Ok(Ok(_)) => {}
                Ok(Err(key)) => {
                    failed = false;
                    blocked = Some(key);
                }
                // A key was in use, and the store answered during the wait.
                Err(LockError::Unavailable(error))
                    if blocked.is_some()
                        && error.kind() == StoreErrorKind::Unanswered
                        && self.wait.is_over() => {}
                // A store that was silent is asked once more; one that cannot serve now, for as long as the wait lasts.
                Err(LockError::Unavailable(error))
                    if is_polite && !error.is_final() && !self.wait.is_one_try() =>
                {
                    let may_pass = error.kind().may_pass();
                    if self.wait.is_over() || !may_pass && std::mem::replace(&mut failed, true) {
                        return Err(error.into());
                    }
                    if may_pass {
                        let pause = Instant::now() + backoff.next();
                        sleep_until(pause.min(self.wait.until)).await;
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
    ) -> Result<Result<Shares, Blocked>, LockError> {
        let mut shares: Vec<Option<Share>> = self.keys.iter().map(|_| None).collect();
        if let Some(Blocked { index, .. }) = blocked {
            shares[index] = Some(self.take_one(index, self.wait).await?);
        }
        // That may have taken long.
        let now = Instant::now();
        let terms = self.keys.iter().map(|(_, mode)| Terms {
            max_waiters: None,
            ..self.terms.in_mode(*mode)
        });
        let terms: Vec<_> = terms.collect();
        let mut asked = Vec::with_capacity(self.keys.len());
        let mut ticket = Ticket::new(self.core, self.terms.route, now);
        for (index, (key, _)) in self.keys.iter().enumerate() {
            if shares[index].is_some() {
                continue;
            }
            match ticket.enter(key, &terms[index]) {
                Ok(Some(share)) => shares[index] = Some(share),
                Ok(None) => asked.push(index),
                Err(LockError::Busy { retry_after }) => {
                    return Ok(Err(Blocked { index, retry_after }));
                }
                Err(error) => return Err(error),
            }
        }
        if !asked.is_empty() {
            let attempts = ticket.places.iter();
            let attempts = attempts.map(|place| place.attempt(self.core));
            let mut pending = Pending::several(self.core, attempts.collect(), Want::All);
            let answer = unless_closed(self.core, self.wait, pin!(pending.ask())).await?;
            let now = Instant::now();
            let holds = match answer? {
                Reply::Granted(grants) => {
                    let terms = |index: usize| ticket.places[index].terms;
                    let granted = pending.granted(&grants, terms, now);
                    granted.ok_or_else(answered_late)?
                }
                Reply::Refused { index, retry_after } => {
                    return Ok(Err(Blocked {
                        index: asked[index],
                        retry_after: Some(retry_after),
                    }));
                }
            };
            // All of them are holds before any of them may fail.
            let granted = asked.into_iter().zip(holds).rev();
            let granted = granted.map(|(index, held)| (index, ticket.granted(held, now)));
            for (index, share) in granted.collect::<Vec<_>>() {
                shares[index] = Some(share?);
            }
        }
        let shares: Option<SmallVec<_>> = shares.into_iter().collect();
        Ok(Ok(Shares::new(
            shares.expect("the store granted every key"),
        )))
    }

    /// Takes one key after the other.
    async fn take_in_order(&self) -> Result<Result<Shares, Blocked>, LockError> {
        let mut shares = Shares::new(SmallVec::new());
        for index in 0..self.keys.len() {
            let wait = match index {
                0 => self.wait,
                _ => self.wait.no_later_than(Instant::now() + HOLDS_AND_WAITS),
            };
            match self.take_one(index, wait).await {
                Ok(share) => shares.push(share),
                Err(LockError::Busy { retry_after }) if !self.wait.is_over() => {
                    return Ok(Err(Blocked { index, retry_after }));
                }
                // So short a wait may end before the store has said who holds the key.
                Err(LockError::Unavailable(error))
                    if index > 0
                        && error.kind() == StoreErrorKind::Unanswered
                        && !self.wait.is_over() =>
                {
                    let retry_after = None;
                    return Ok(Err(Blocked { index, retry_after }));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Ok(shares))
    }

    /// Waits for one of the keys.
    async fn take_one(&self, index: usize, wait: Wait) -> Result<Share, LockError> {
        let (key, mode) = self.keys[index];
        let terms = self.terms.in_mode(mode);
        let mut ticket = Ticket::new(self.core, self.terms.route, Instant::now());
        match ticket.enter(key, &terms)? {
            Some(share) => Ok(share),
            None => ticket.take(wait).await,
        }
    }
}
