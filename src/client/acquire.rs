//! The one loop that waits for a key: for one, or any of several.

use std::time::Duration;

use tokio::time::Instant;

use super::LockClient;
use super::attempt::AttemptGuard;
use super::question::{Reply, Wanted};
use super::queued_keys::{QueuedKeys, sooner};
use super::snapshot::Listed;
use super::wait::{Failures, POLL, Wait, answered_late, over};
use crate::error::{LockError, StoreError, StoreErrorKind};
use crate::limits::LAST_MOMENT;
use crate::lock::{LockKey, LockMode};
use crate::queue::{Decision, Share, Terms, Turn};
use crate::store::Want;
use crate::telemetry::LockEventKind;

mod listening;

/// A request under way: it has attempts for the keys that it may ask the store for, and waits in the queues of the others. If it is
/// dropped, what its attempts have left is withdrawn.
pub(super) struct Request<'a> {
    client: &'a LockClient,
    terms: &'a Terms,
    wait: Wait,
    pub(super) attempts: AttemptGuard<'a>,
    pub(super) queued: QueuedKeys<'a>,
    /// The answer to the first question, until the request looks at it. It may be there when the request has entered its queue.
    pub(super) reply: Option<Result<Reply, StoreError>>,
    /// The present holder's lease, if it is known. `None`: no holder is known, so a missing answer is reported as a
    /// failure of the store.
    known: Option<Duration>,
}

impl LockClient {
    /// Takes one of `keys`: the first that this process can share, or that the store grants.
    ///
    /// The request has a place for every key: in the queue of the process, first in, first out, and, when it has the turn,
    /// in the store. It asks the store about all keys whose turn it has at once. The first grant ends the request, and it
    /// gives up all other places. `entered`: what [`take_at_once`](Self::take_at_once) has begun for the only key.
    pub(super) async fn take(
        &self,
        keys: &[(&LockKey, LockMode)],
        entered: Option<Box<Request<'_>>>,
        terms: &Terms,
        wait: Wait,
        now: Instant,
    ) -> Result<Share, LockError> {
        let mut request = match entered {
            Some(request) => *request,
            None => {
                let want = match keys {
                    [_] => wait.for_one(),
                    _ => Wanted::Several(Want::Any),
                };
                let mut request = Request::new(self, want, terms, wait, now);
                if let Some(share) = request.enter(keys, now)? {
                    return Ok(share);
                }
                request
            }
        };
        if request.reply.is_none() && request.attempts.asks_at_once() {
            request.reply = Some(request.ask(now).await?);
        }
        let reply = request.reply.take();
        let answer = match reply.map(|reply| request.share(reply)) {
            Some(Ok(share)) => return Ok(share),
            Some(Err(refused)) => Some(refused),
            None => None,
        };
        let listed = Listed::new(&self.inner.store_waiters, now);
        // Most requests are granted at once. The state of a wait is large, so it is boxed.
        let share = Box::pin(request.wait_for(answer, listed)).await?;
        let hold = &share.live().hold;
        let waited = || LockEventKind::Granted {
            waited: now.elapsed(),
        };
        self.inner
            .events
            .tell(&hold.key, Some(hold.mode), &terms.route, waited);
        Ok(share)
    }
}

/// An answer without a share.
enum NotGranted {
    Refused {
        retry_after: Duration,
    },
    /// The answer took longer than the lease.
    Late,
    Failed(StoreError),
}

impl<'a> Request<'a> {
    pub(super) fn new(
        client: &'a LockClient,
        want: Wanted,
        terms: &'a Terms,
        wait: Wait,
        now: Instant,
    ) -> Self {
        Self {
            client,
            terms,
            wait,
            attempts: AttemptGuard::new(client, want, now),
            queued: QueuedKeys::default(),
            reply: None,
            known: None,
        }
    }

    /// Enters the queue of every key that has room.
    fn enter(
        &mut self,
        keys: &[(&'a LockKey, LockMode)],
        now: Instant,
    ) -> Result<Option<Share>, LockError> {
        let mut refused = None;
        for &(key, mode) in keys {
            let terms = self.terms.in_mode(mode);
            match self.client.inner.queues.enter(key, &terms, now) {
                Ok(Decision::Grant(share)) => return Ok(Some(share)),
                Ok(Decision::Ask(turn)) => {
                    self.add(key, turn);
                    if self.attempts.is_nested() {
                        return Ok(None);
                    }
                }
                Ok(Decision::Wait(queued)) => self.queued.add(key, queued),
                Err(error @ (LockError::Busy { .. } | LockError::Overloaded)) => {
                    refused = Some(sooner(refused, error));
                }
                Err(error) => return Err(error),
            }
        }
        match refused {
            Some(error) if self.has_no_place() => Err(error),
            _ => Ok(None),
        }
    }

    fn has_no_place(&self) -> bool {
        self.attempts.is_empty() && self.queued.is_empty()
    }

    /// Waits until one of the keys is granted.
    ///
    /// A wake-up is never missed: the loop asks, subscribes, asks again, and only then sleeps, until a wake-up, something
    /// from a queue of the process, the time of the store's hint, or one poll. When a subscription ends, it asks and subscribes
    /// again. A request that expects a refusal subscribes first, and asks only once.
    async fn wait_for(
        mut self,
        mut first: Option<NotGranted>,
        mut listed: Listed<'a>,
    ) -> Result<Share, LockError> {
        let mut failures = Failures::default();
        loop {
            let answer = match first.take() {
                Some(answer) => answer,
                None => match self.ask_in_turn().await? {
                    Ok(share) => return Ok(share),
                    Err(answer) => answer,
                },
            };
            match answer {
                NotGranted::Refused { retry_after } => {
                    failures = Failures::default();
                    self.refused(retry_after, &mut listed).await?;
                }
                NotGranted::Late => {
                    // A nested read has no other id.
                    let is_last = self.attempts.is_nested() || self.wait.is_one_try();
                    if is_last || self.wait.is_over() {
                        return Err(answered_late().into());
                    }
                    self.attempts.restart();
                }
                NotGranted::Failed(error) => {
                    let unanswered = error.kind() == StoreErrorKind::Unanswered;
                    if unanswered && self.attempts.is_nested() {
                        return Err(error.into());
                    }
                    if unanswered || !self.attempts.is_one() {
                        // The attempt may still be granted, so it is withdrawn, and the next question has another id.
                        self.attempts.restart();
                    }
                    if !failures.allow_another(&error, self.wait).await {
                        return Err(error.into());
                    }
                }
            }
        }
    }

    /// Asks the store when the request has a turn, unless a queue of the process gives it a share before.
    async fn ask_in_turn(&mut self) -> Result<Result<Share, NotGranted>, LockError> {
        if let Some(share) = self.take_turns().await? {
            return Ok(Ok(share));
        }
        if self.attempts.expects_refusal() {
            self.listen_first().await;
        }
        if !self.let_others_go_first().await {
            return Err(LockError::Busy {
                retry_after: self.known,
            });
        }
        let reply = self.ask(Instant::now()).await?;
        Ok(self.share(reply))
    }

    /// Waits until the request is to ask again.
    async fn refused(
        &mut self,
        retry_after: Duration,
        listed: &mut Listed<'_>,
    ) -> Result<(), LockError> {
        self.known = Some(retry_after);
        self.client.inner.queues.background().start_stranded();
        self.attempts.refused(retry_after);
        let holds = self.attempts.each().map(|one| &one.attempt.hold);
        let keys = holds.map(|hold| (&hold.key, hold.mode));
        listed.list(keys, &self.terms.route);
        if self.wait.is_one_try() {
            return Err(over(self.known));
        }
        let refused = Instant::now();
        if self.listen(refused + retry_after.min(POLL)).await {
            return Ok(());
        }
        self.sleep(self.wait.next_poll(refused, retry_after)).await;
        match self.wait.is_over() {
            true => Err(over(self.known)),
            false => Ok(()),
        }
    }

    /// Takes what the queues of the process have given. Waits for it while the request has no turn to ask the store.
    async fn take_turns(&mut self) -> Result<Option<Share>, LockError> {
        if !self.attempts.is_empty() {
            // Its questions may all fail. Without attempts, it looks while it waits.
            self.queued.look();
        }
        loop {
            let given = match self.attempts.is_empty() {
                true => Some(self.given().await?),
                false => self.queued.given_by_now(),
            };
            let Some(given) = given else {
                return Ok(None);
            };
            if let Some(known) = given.known {
                // The request has waited for other requests nearly all the time.
                let late = self.wait.until < Instant::now() + LAST_MOMENT;
                self.known = known.or(late.then_some(Duration::ZERO)).or(self.known);
            }
            let decision = match given.decision {
                // One queue is full, and the request has a place elsewhere.
                Err(LockError::Overloaded) if !self.has_no_place() => continue,
                decision => decision?,
            };
            match decision {
                Decision::Grant(share) => return Ok(Some(share)),
                Decision::Ask(turn) => self.add(given.key, turn),
                Decision::Wait(_) => unreachable!("a place is not exchanged for another"),
            }
        }
    }

    /// Adds the attempt of a turn. A nested read is granted at once, and its id cannot change: no other key is asked for.
    fn add(&mut self, key: &'a LockKey, turn: Turn) {
        if turn.nested().is_some() {
            self.queued.clear();
            self.attempts.clear();
        }
        let terms = self.terms.in_mode(turn.mode());
        self.attempts.add(key, &terms, turn);
    }

    async fn ask(&mut self, now: Instant) -> Result<Result<Reply, StoreError>, LockError> {
        let answered = self.attempts.ask(now, self.wait.until).await;
        answered.map_err(|_| over(self.known))
    }

    fn share(&mut self, reply: Result<Reply, StoreError>) -> Result<Share, NotGranted> {
        match reply {
            Ok(Reply::Granted(granted)) => {
                let shares = self.attempts.granted(granted, self.terms);
                let mut shares = shares.ok_or(NotGranted::Late)?;
                Ok(shares.pop().expect("one was granted"))
            }
            Ok(Reply::Refused { retry_after, .. }) => Err(NotGranted::Refused { retry_after }),
            Err(error) => Err(NotGranted::Failed(error)),
        }
    }
}
