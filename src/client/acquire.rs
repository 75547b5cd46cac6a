//! One key, or any of several: the one question that a free lock costs, and then a ticket.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::wait::{Wait, over};
use crate::contend::{Contending, Pending, Reply, answered_late, attempt};
use crate::error::{LockError, StoreError, StoreErrorKind};
use crate::hold::Held;
use crate::lock::{LockKey, LockMode};
use crate::release::{Core, Share};
use crate::store::Want;
use crate::table::{Entered, Side, Slot, Taken, Terms};
use crate::telemetry::LockEventKind;

/// A request that has come in.
pub(super) enum Step {
    Share(Share),
    Ask(Asker),
    Wait(Ticket),
}

/// A request that asks the store. When it is dropped, it asks no more.
pub(super) struct Asker {
    core: Arc<Core>,
    key: LockKey,
    terms: Terms,
    number: u64,
    is_done: bool,
    /// A shutdown waits for it.
    _counted: TaskTrackerToken,
}

/// The places of a request that waits: the first grant is its answer. If it is dropped, it leaves them; a grant that it has not taken
/// goes to the next request.
pub(super) struct Ticket {
    core: Arc<Core>,
    slot: Option<Arc<Slot>>,
    places: SmallVec<[Place; 1]>,
    since: Instant,
}

struct Place {
    key: LockKey,
    terms: Terms,
    number: u64,
}

/// A request for `key` comes in.
pub(super) fn enter(
    core: &Arc<Core>,
    key: &LockKey,
    terms: &Terms,
    ticket: &mut Ticket,
    now: Instant,
) -> Result<Option<Step>, LockError> {
    let number = core.next_number();
    // Before the table may refuse it: a shutdown that closes the table afterwards waits for it.
    let counted = core.spawner.tracker.token();
    let (entered, out) = core.table.enter(key, number, terms, &mut ticket.slot, now)?;
    core.run(out);
    Ok(match entered {
        Entered::Share(grant) => Some(Step::Share(core.share(grant))),
        Entered::Ask => Some(Step::Ask(Asker {
            core: core.clone(),
            key: key.clone(),
            terms: terms.clone(),
            number,
            is_done: false,
            _counted: counted,
        })),
        Entered::Wait { start } => {
            ticket.add(key, terms, number);
            if let Some(task) = start {
                let place = (key, Side::of(terms.mode), number);
                Contending::start(core, place, task, None, None);
            }
            None
        }
    })
}

/// The same for one key alone.
pub(super) fn enter_one(
    core: &Arc<Core>,
    key: &LockKey,
    terms: &Terms,
    now: Instant,
) -> Result<Step, LockError> {
    let mut ticket = Ticket::new(core, now);
    let step = enter(core, key, terms, &mut ticket, now)?;
    Ok(step.unwrap_or(Step::Wait(ticket)))
}

/// Takes one key: asks the store if the request may, and waits. The step is borrowed, so that the future has no copies of it.
pub(super) async fn take(step: &mut Option<Step>, wait: Wait) -> Result<Share, LockError> {
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

impl Asker {
    pub(super) fn key(&self) -> &LockKey {
        &self.key
    }

    pub(super) fn terms(&self) -> &Terms {
        &self.terms
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Asks once. If the store is silent or refuses, a request that waits gets a ticket, and a task asks for it.
    pub(super) async fn ask(&mut self, wait: Wait) -> Result<Step, LockError> {
        let mut pending = Pending::one(&self.core, &self.key, &self.terms, self.number);
        let answer = {
            let asking = pin!(pending.ask());
            unless_closed(&self.core, wait, asking).await?
        };
        self.answered(wait, pending, answer)
    }

    fn answered(
        &mut self,
        wait: Wait,
        mut pending: Pending,
        answer: Result<Reply, StoreError>,
    ) -> Result<Step, LockError> {
        let answer = match answer {
            Ok(Reply::Granted(grants)) => {
                match pending.granted(&grants, |_| &self.terms).and_then(|mut holds| holds.pop()) {
                    Some(held) => return self.granted(held).map(Step::Share),
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
    pub(super) fn granted(&mut self, held: Arc<Held>) -> Result<Share, LockError> {
        self.is_done = true;
        let core = &self.core;
        match core.table.granted(self.number, &held, &self.terms, Instant::now()) {
            Ok((grant, out)) => {
                let share = core.share(grant);
                core.run(out);
                Ok(share)
            }
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
    ) -> Result<Step, LockError> {
        let mut ticket = Ticket::new(&self.core, Instant::now());
        let retry_after = answer.as_ref().ok().copied();
        let answer = answer.map_err(|error| error.kind());
        // One that may still be granted is withdrawn, and the next question has another id.
        let is_known = answer != Err(StoreErrorKind::Unanswered);
        let share = self.stand(&mut ticket, retry_after, is_known.then_some(pending), Some(answer))?;
        Ok(share.map_or(Step::Wait(ticket), Step::Share))
    }

    /// Takes its place in the line of its key.
    fn stand(
        &mut self,
        ticket: &mut Ticket,
        retry_after: Option<Duration>,
        pending: Option<Pending>,
        answer: Option<Result<Duration, StoreErrorKind>>,
    ) -> Result<Option<Share>, LockError> {
        let (core, key, terms, number) = (&self.core, &self.key, &self.terms, self.number);
        let now = Instant::now();
        let until = retry_after.and_then(|retry_after| now.checked_add(retry_after));
        let news = (until, pending.is_some());
        let (entered, out) = core.table.refused(key, number, terms, &mut ticket.slot, news, now)?;
        self.is_done = true;
        core.run(out);
        match entered {
            Entered::Share(grant) => return Ok(Some(core.share(grant))),
            Entered::Ask => unreachable!("it has asked"),
            Entered::Wait { start } => {
                ticket.add(key, terms, number);
                if let Some(task) = start {
                    let place = (key, Side::of(terms.mode), number);
                    Contending::start(core, place, task, pending, answer);
                }
            }
        }
        Ok(None)
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        if !self.is_done {
            let out = self.core.table.asked(&self.key, self.number);
            self.core.run(out);
        }
    }
}

impl Ticket {
    pub(super) fn new(core: &Arc<Core>, since: Instant) -> Self {
        Self {
            core: core.clone(),
            slot: None,
            places: SmallVec::new(),
            since,
        }
    }

    fn add(&mut self, key: &LockKey, terms: &Terms, number: u64) {
        self.places.push(Place {
            key: key.clone(),
            terms: terms.clone(),
            number,
        });
    }

    /// Waits for a grant.
    async fn wait(&mut self, wait: Wait) -> Result<Share, LockError> {
        match timeout_at(wait.until, poll_fn(|cx| self.poll(cx))).await {
            Ok(given) => {
                if let Ok(share) = &given {
                    self.tell(share);
                }
                given
            }
            Err(_) => Err(self.why_not()),
        }
    }

    /// Reports the grant, for which the request has waited.
    fn tell(&self, share: &Share) {
        let hold = &share.held().hold;
        let waited = || LockEventKind::Granted {
            waited: self.since.elapsed(),
        };
        if let Some(place) = self.places.first() {
            let route = &place.terms.route;
            self.core.events.tell(&hold.key, Some(hold.mode), route, waited);
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Share, LockError>> {
        let Some(slot) = self.slot.clone() else {
            return Poll::Pending;
        };
        loop {
            match slot.poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Taken::Answer(answer)) => {
                    return Poll::Ready(answer.map(|grant| self.core.share(grant)));
                }
                // It was not polled for a while. Its place is still the same.
                Poll::Ready(Taken::Revoked(number)) => match self.stand_again(number) {
                    Ok(Some(share)) => return Poll::Ready(Ok(share)),
                    Ok(None) => {}
                    Err(error) => return Poll::Ready(Err(error)),
                },
            }
        }
    }

    fn stand_again(&mut self, number: u64) -> Result<Option<Share>, LockError> {
        let (core, slot) = (&self.core, &mut self.slot);
        let Some(place) = self.places.iter().find(|place| place.number == number) else {
            return Ok(None);
        };
        let (key, terms, now) = (&place.key, &place.terms, Instant::now());
        let (entered, out) = core.table.refused(key, number, terms, slot, (None, false), now)?;
        core.run(out);
        match entered {
            Entered::Share(grant) => return Ok(Some(core.share(grant))),
            Entered::Wait { start: Some(task) } => {
                let place = (key, Side::of(terms.mode), number);
                Contending::start(core, place, task, None, None);
            }
            Entered::Wait { start: None } | Entered::Ask => {}
        }
        Ok(None)
    }

    /// The error after the time-out: others hold the keys, or the store never answered.
    fn why_not(&self) -> LockError {
        let now = Instant::now();
        let known = self.places.iter().filter_map(|place| {
            let (key, mode) = (&place.key, place.terms.mode);
            self.core.table.known(key, mode, self.since, now)
        });
        match known.reduce(|one, other| one.into_iter().chain(other).min()) {
            Some(retry_after) => LockError::Busy { retry_after },
            None => over(None),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else {
            return;
        };
        if let Some(grant) = slot.close() {
            drop(self.core.share(grant));
        }
        for place in &self.places {
            let side = Side::of(place.terms.mode);
            let out = self.core.table.left(&place.key, side, place.number);
            self.core.run(out);
        }
    }
}

/// Takes one of several keys: the first that this process can share, or that the store grants.
pub(super) async fn take_any(
    core: &Arc<Core>,
    keys: &[(&LockKey, LockMode)],
    terms: &Terms,
    wait: Wait,
    now: Instant,
) -> Result<Share, LockError> {
    let mut ticket = Ticket::new(core, now);
    let (mut askers, mut refused) = (Vec::new(), None);
    for &(key, mode) in keys {
        match enter(core, key, &terms.in_mode(mode), &mut ticket, now) {
            Ok(Some(Step::Share(share))) => return Ok(share),
            Ok(Some(Step::Ask(asker))) => askers.push(asker),
            Ok(Some(Step::Wait(_)) | None) => {}
            Err(error @ (LockError::Busy { .. } | LockError::Overloaded)) => {
                refused = Some(sooner(refused, error));
            }
            Err(error) => return Err(error),
        }
    }
    match refused {
        Some(error) if askers.is_empty() && ticket.places.is_empty() => return Err(error),
        _ => {}
    }
    if !askers.is_empty() {
        match ask_any(core, askers, &mut ticket, wait).await? {
            Some(share) => return Ok(share),
            None if ticket.places.is_empty() => return Err(over(None)),
            None => {}
        }
    }
    ticket.wait(wait).await
}

/// Asks for the first free one of several keys. If none is, the request waits for all of them.
async fn ask_any(
    core: &Arc<Core>,
    mut askers: Vec<Asker>,
    ticket: &mut Ticket,
    wait: Wait,
) -> Result<Option<Share>, LockError> {
    let attempts = askers.iter().map(|asker| {
        let terms = Terms {
            max_waiters: None,
            ..asker.terms.clone()
        };
        attempt(core, &asker.key, &terms, asker.number)
    });
    let mut pending = Pending::several(core, attempts.collect(), Want::Any);
    let answer = unless_closed(core, wait, pin!(pending.ask())).await?;
    let retry_after = match answer {
        Ok(Reply::Granted(grants)) => {
            let granted = pending.granted(&grants, |index| &askers[index].terms);
            match granted.and_then(|mut holds| Some((grants[0].index, holds.pop()?))) {
                Some((index, held)) => return askers.swap_remove(index).granted(held).map(Some),
                None if wait.is_one_try() => return Err(answered_late().into()),
                None => None,
            }
        }
        Ok(Reply::Refused { retry_after, .. }) if wait.is_one_try() => {
            return Err(LockError::Busy {
                retry_after: Some(retry_after),
            });
        }
        Ok(Reply::Refused { retry_after, .. }) => Some(retry_after),
        Err(error) if wait.is_one_try() || error.is_final() => return Err(error.into()),
        Err(_) => None,
    };
    drop(pending);
    for mut asker in askers {
        // What asked has no place in the store; what waits has another id.
        let number = core.next_number();
        let out = core.table.asked(&asker.key, asker.number);
        core.run(out);
        asker.number = number;
        match asker.stand(ticket, retry_after, None, None) {
            Ok(Some(share)) => return Ok(Some(share)),
            Ok(None) | Err(LockError::Overloaded) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
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

/// Picks the reason with the better prospect: a lease that ends, before a full queue.
fn sooner(one: Option<LockError>, other: LockError) -> LockError {
    match (one, other) {
        (Some(LockError::Busy { retry_after: one }), LockError::Busy { retry_after: other }) => {
            LockError::Busy {
                retry_after: one.into_iter().chain(other).min(),
            }
        }
        (Some(LockError::Busy { retry_after }), _) => LockError::Busy { retry_after },
        (_, other) => other,
    }
}
