//! One key, or any of several: the one question that a free lock costs, and then a ticket.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::ticket::Ticket;
use super::wait::{Wait, over};
use crate::contend::{Contending, Pending, Reply, answered_late, attempt, held};
use crate::error::{LockError, StoreError, StoreErrorKind};
use crate::hold::{Held, valid_for};
use crate::lock::LockKey;
use crate::release::{Core, Share};
use crate::store::{Asked, Outcome};
use crate::table::{Entered, Terms};

/// A request that has come in.
pub(super) enum Step<'a> {
    Share(Share),
    Ask(Asker<'a>),
    Wait(Ticket<'a>),
}

/// A request that asks the store. When it is dropped, it asks no more.
pub(super) struct Asker<'a> {
    core: &'a Arc<Core>,
    key: &'a LockKey,
    terms: &'a Terms,
    number: u64,
    is_done: bool,
    /// A shutdown waits for it.
    _counted: TaskTrackerToken,
}

/// A request for `key` comes in.
pub(super) fn enter<'a>(
    core: &'a Arc<Core>,
    key: &'a LockKey,
    terms: &'a Terms,
    ticket: &mut Ticket<'a>,
    now: Instant,
) -> Result<Option<Step<'a>>, LockError> {
    let number = core.next_number();
    // Before the table may refuse it: a shutdown that closes the table afterwards waits for it.
    let counted = core.spawner.tracker.token();
    let entered = core.entry(key, now, |key| key.enter(number, terms, &mut ticket.slot));
    Ok(match entered? {
        Entered::Share(grant) => Some(Step::Share(core.share(grant))),
        Entered::Ask => Some(Step::Ask(Asker {
            core,
            key,
            terms,
            number,
            is_done: false,
            _counted: counted,
        })),
        Entered::Wait { start } => {
            ticket.add(key, terms, number);
            if let Some(task) = start {
                Contending::start(core, key, task, None, None);
            }
            None
        }
    })
}

/// The same for one key alone.
pub(super) fn enter_one<'a>(
    core: &'a Arc<Core>,
    key: &'a LockKey,
    terms: &'a Terms,
    now: Instant,
) -> Result<Step<'a>, LockError> {
    let mut ticket = Ticket::new(core, now);
    let step = enter(core, key, terms, &mut ticket, now)?;
    Ok(step.unwrap_or(Step::Wait(ticket)))
}

/// Takes one key: asks the store if the request may, and waits. The step is borrowed, so that the future has no copies of it.
pub(super) async fn take(step: &mut Option<Step<'_>>, wait: Wait) -> Result<Share, LockError> {
    if let Some(Step::Ask(asker)) = step {
        let next = asker.ask(wait).await?;
        *step = Some(next);
    }
    if let Some(Step::Wait(ticket)) = step {
        return ticket.wait(wait).await;
    }
    match step.take() {
        Some(Step::Share(share)) => Ok(share),
        _ => unreachable!("it has asked"),
    }
}

impl<'a> Asker<'a> {
    pub(super) fn key(&self) -> &'a LockKey {
        self.key
    }

    pub(super) fn terms(&self) -> &'a Terms {
        self.terms
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Asks once. If the store is silent or refuses, a request that waits gets a ticket, and a task asks for it.
    pub(super) async fn ask(&mut self, wait: Wait) -> Result<Step<'a>, LockError> {
        let mut pending = Pending::one(self.core, self.key, self.terms, self.number);
        let answer = {
            let asking = pin!(pending.ask());
            unless_closed(self.core, wait, asking).await?
        };
        self.answered(wait, pending, answer)
    }

    /// The same for a store that answers at once.
    pub(super) fn ask_now(&mut self, wait: Wait) -> Result<Step<'a>, LockError> {
        // The request may have come long ago: its thread may have stood still since.
        let now = Instant::now();
        let attempt = attempt(self.core, self.key, self.terms, self.number);
        let answer = match self.core.store.acquire(&attempt) {
            Asked::Now(Ok(Outcome::Granted { token })) => {
                let until = now + valid_for(attempt.lease);
                let held = held(attempt.hold, self.terms, token, until);
                return self.granted(held, now).map(Step::Share);
            }
            Asked::Now(answer) => answer.map(Reply::from),
            Asked::Later(_) => unreachable!("the store answers at once"),
        };
        let pending = Pending::answered(self.core, attempt, &answer);
        self.answered(wait, pending, answer)
    }

    fn answered(
        &mut self,
        wait: Wait,
        mut pending: Pending,
        answer: Result<Reply, StoreError>,
    ) -> Result<Step<'a>, LockError> {
        let answer = match answer {
            Ok(Reply::Granted(grants)) => {
                let now = Instant::now();
                let granted = pending.granted(&grants, |_| self.terms, now);
                match granted.and_then(|mut holds| holds.pop()) {
                    Some(held) => return self.granted(held, now).map(Step::Share),
                    None => Err(answered_late()),
                }
            }
            Ok(Reply::Refused { retry_after, .. }) => Ok(retry_after),
            Err(error) => Err(error),
        };
        match answer {
            Ok(retry_after) if wait.is_one_try() => Err(LockError::Busy {
                retry_after: Some(retry_after),
            }),
            Err(error) if wait.is_one_try() || error.is_final() => Err(error.into()),
            answer => self.wait(pending, answer),
        }
    }

    /// The store has granted the hold.
    pub(super) fn granted(&mut self, held: Arc<Held>, now: Instant) -> Result<Share, LockError> {
        self.is_done = true;
        let core = self.core;
        let granted = core.event(self.key, now, |key| {
            key.granted(self.number, &held, self.terms)
        });
        match granted.expect("the key of a request that asks is here") {
            Ok(grant) => Ok(core.share(grant)),
            Err(closed) => {
                core.give_back(held);
                Err(closed)
            }
        }
    }

    /// The request waits. The task that asks for it goes on with its attempt.
    fn wait(
        &mut self,
        pending: Pending,
        answer: Result<Duration, StoreError>,
    ) -> Result<Step<'a>, LockError> {
        let mut ticket = Ticket::new(self.core, Instant::now());
        let retry_after = answer.as_ref().ok().copied();
        let answer = answer.map_err(|error| error.kind());
        // One that may still be granted is withdrawn, and the next question has another id.
        let is_known = answer != Err(StoreErrorKind::Unanswered);
        let share = self.stand(
            &mut ticket,
            retry_after,
            is_known.then_some(pending),
            Some(answer),
        )?;
        Ok(share.map_or(Step::Wait(ticket), Step::Share))
    }

    /// Waits after a question for several keys, which left no place in the store: what waits has another id.
    pub(super) fn stand_anew(
        &mut self,
        ticket: &mut Ticket<'a>,
        retry_after: Option<Duration>,
    ) -> Result<Option<Share>, LockError> {
        let (core, number) = (self.core, self.number);
        core.event(self.key, Instant::now(), |key| key.asked(number));
        self.number = core.next_number();
        self.stand(ticket, retry_after, None, None)
    }

    /// Takes its place in the line of its key.
    fn stand(
        &mut self,
        ticket: &mut Ticket<'a>,
        retry_after: Option<Duration>,
        pending: Option<Pending>,
        answer: Option<Result<Duration, StoreErrorKind>>,
    ) -> Result<Option<Share>, LockError> {
        let (core, key, terms, number) = (self.core, self.key, self.terms, self.number);
        let now = Instant::now();
        let until = retry_after.and_then(|retry_after| now.checked_add(retry_after));
        let news = (until, pending.is_some());
        let entered = core.entry(key, now, |key| {
            key.refused(number, terms, &mut ticket.slot, news)
        })?;
        self.is_done = true;
        match entered {
            Entered::Share(grant) => return Ok(Some(core.share(grant))),
            Entered::Ask => unreachable!("it has asked"),
            Entered::Wait { start } => {
                ticket.add(key, terms, number);
                if let Some(task) = start {
                    Contending::start(core, key, task, pending, answer);
                }
            }
        }
        Ok(None)
    }
}

impl Drop for Asker<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            let number = self.number;
            self.core
                .event(self.key, Instant::now(), |key| key.asked(number));
        }
    }
}

/// Waits for an answer until the wait is over, or the client is shut down.
pub(super) async fn unless_closed<T>(
    core: &Core,
    wait: Wait,
    mut work: Pin<&mut impl Future<Output = T>>,
) -> Result<T, LockError> {
    // In memory it is done by now, also outside of a runtime.
    if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await {
        return Ok(done);
    }
    tokio::select! {
        biased; // without chance, a simulation replays
        done = timeout_at(wait.until, work) => done.map_err(|_| over(None)),
        () = core.closing.cancelled() => Err(LockError::Shutdown),
    }
}
