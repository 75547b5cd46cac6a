//! A request for one key, until it has entered its queue and a store that answers at once has answered.

use tokio::time::Instant;

use super::LockClient;
use super::attempt::AttemptGuard;
use super::question::Reply;
use super::wait::Wait;
use crate::error::{LockError, StoreError};
use crate::lock::{LockKey, LockMode};
use crate::queue::{AtOnce, Decision, Queued, Share, Terms};
use crate::store::{Attempt, Outcome};
use crate::watchdog::valid_for;

/// The result of [`LockClient::take_now`].
pub(super) enum TakenNow<'a> {
    Granted(Share),
    /// The request waits, or the store has refused it.
    Begun(Box<Begun<'a>>),
}

/// A request for one key that has entered its queue. If it is dropped, what its attempt has left is withdrawn.
pub(super) struct Begun<'a> {
    pub(super) attempts: AttemptGuard<'a>,
    /// The answer, if the store was asked.
    pub(super) reply: Option<Result<Reply, StoreError>>,
    pub(super) place: Option<Queued>,
}

impl LockClient {
    /// Takes `key` if this process can share it, or if a store that answers at once grants it: without a future, a turn and a
    /// guard of the attempt. `None`: [`take`](Self::take) is to be called; nothing has changed.
    pub(super) fn take_now(
        &self,
        key: &LockKey,
        terms: &Terms,
        wait: Wait,
        now: Instant,
    ) -> Option<Result<TakenNow<'_>, LockError>> {
        let store = self.inner.store.at_once()?;
        // The grant of a permit may wake another waiter, and a place in a fair queue has rules of its own.
        if matches!(terms.mode, LockMode::Permit(_) | LockMode::Fair) {
            return None;
        }
        let ask = || {
            let attempt = self.attempt(key, terms, wait.for_one(), None);
            match store.acquire_now(&attempt) {
                // An answer that took longer than the lease is no grant.
                Ok((Outcome::Granted { token }, at)) if at < now + valid_for(attempt.lease) => {
                    let Attempt { hold, lease, .. } = attempt;
                    AtOnce::Granted(terms.live(hold, lease, token, now), at)
                }
                answer => {
                    AtOnce::Otherwise((attempt, answer.map(|(outcome, _)| Reply::from(outcome))))
                }
            }
        };
        let (decision, asked) = match self.inner.queues.enter_and_ask(key, terms, now, ask) {
            Ok(entered) => entered,
            Err(error) => return Some(Err(error)),
        };
        let mut begun = Begun {
            attempts: AttemptGuard::new(self, wait.for_one(), now),
            reply: None,
            place: None,
        };
        match decision {
            Decision::Grant(share) => return Some(Ok(TakenNow::Granted(share))),
            Decision::Wait(place) => begun.place = Some(place),
            Decision::Ask(turn) => match asked {
                Some((attempt, reply)) => {
                    begun.reply = Some(begun.attempts.add_answered(turn, attempt, reply));
                }
                None => begun.attempts.add(key, terms, turn),
            },
        }
        Some(Ok(TakenNow::Begun(Box::new(begun))))
    }
}
