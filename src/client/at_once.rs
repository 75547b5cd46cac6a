//! A request for one key, until it has entered its queue and a store that answers at once has answered.

use tokio::time::Instant;

use super::LockClient;
use super::acquire::Request;
use super::question::Reply;
use super::request::Started;
use super::wait::Wait;
use crate::error::LockError;
use crate::lock::{LockKey, LockMode};
use crate::queue::{Decision, Share, Terms};
use crate::store::{Attempt, Outcome};
use crate::watchdog::valid_for;

impl LockClient {
    /// Takes `key` if this process can share it, or if a store that answers at once grants it: without a future, a turn and a
    /// guard of the attempt. Otherwise returns the request that has entered its queue; without one, nothing has changed.
    pub(super) fn take_at_once<'a>(
        &'a self,
        key: &'a LockKey,
        terms: &'a Terms,
        wait: Wait,
        now: Instant,
    ) -> Result<Started<Share, Option<Box<Request<'a>>>>, LockError> {
        // The grant of a permit may wake another waiter, and a place in a fair queue has rules of its own.
        let is_plain = matches!(
            terms.mode,
            LockMode::Reentrant | LockMode::Read | LockMode::Write
        );
        let Some(store) = self.inner.store.at_once().filter(|_| is_plain) else {
            return Ok(Started::Waits(None));
        };
        let mut asked = None;
        let ask = || {
            let attempt = self.attempt(key, terms, wait.for_one(), None);
            match store.acquire_now(&attempt) {
                // An answer that took longer than the lease is no grant.
                Ok((Outcome::Granted { token }, at)) if at < now + valid_for(attempt.lease) => {
                    let Attempt { hold, lease, .. } = attempt;
                    Some((terms.live(hold, lease, token, now), at))
                }
                answer => {
                    asked = Some((attempt, answer.map(|(outcome, _)| Reply::from(outcome))));
                    None
                }
            }
        };
        let queues = &self.inner.queues;
        let decision = queues.enter_and_ask(key, terms, now, Some(ask))?;
        // A share needs no request.
        let begin = || Box::new(Request::new(self, wait.for_one(), terms, wait, now));
        let request = match decision {
            Decision::Grant(share) => return Ok(Started::Granted(share)),
            Decision::Wait(queued) => {
                let mut request = begin();
                request.queued.add(key, queued);
                request
            }
            Decision::Ask(turn) => {
                let mut request = begin();
                match asked {
                    Some((attempt, answer)) => {
                        request.reply = Some(request.attempts.add_answered(turn, attempt, answer));
                    }
                    None => request.attempts.add(key, terms, turn),
                }
                request
            }
        };
        Ok(Started::Waits(Some(request)))
    }
}
