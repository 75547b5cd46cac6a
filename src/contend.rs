//! The task of a contended key: from the first request that waits to the last, it alone asks the store for that side of the key,
//! listens, and keeps its place in line. In a fair queue each request that waits has a task of its own.
//!
//! A request only holds a ticket, so that no request delays another, whether it is polled or not.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::backoff::jittered;
use crate::error::{LockError, StoreError, StoreErrorKind};
use crate::limits::{LAST_MOMENT, POLL};
use crate::lock::LockKey;
use crate::release::Core;
use crate::store::Reply;
use crate::table::{KeyAt, Next, Task, Terms};

mod listening;
mod pending;
#[cfg(test)]
mod tests;

use listening::Listening;
pub(crate) use pending::{Pending, answered_late, attempt, held};

/// The pause before the next question to a store that cannot serve now.
const PAUSE: Duration = Duration::from_millis(50);

/// The task of one side of a key. It runs near the request that has started it. If it is dropped before its end, with its runtime, it goes
/// on where the background work runs; and with that, those who wait get an error.
pub(crate) struct Contending {
    core: Arc<Core>,
    key: LockKey,
    task: Task,
    /// The attempt, which keeps its id, and so its place in line, when requests come and go.
    pending: Option<Pending>,
    listening: Listening,
    /// The store has refused the attempt: it is asked again at this time, unless a wake-up comes first.
    rests_until: Option<Instant>,
    /// The store gave no answer, and was asked again. Any answer resets it, also that it cannot serve now.
    asked_again: bool,
    /// It has let others ask first.
    has_yielded: bool,
    /// How many questions in a row were granted at once.
    in_a_row: u32,
    /// When it looked last whether the store still carries the hold of this process.
    checked: Instant,
    is_done: bool,
    /// It goes on where the background work runs.
    is_moved: bool,
}

impl Contending {
    /// Starts the task for a request with these terms. `pending`: the attempt that the store has refused, or has not answered; `answer`:
    /// when to ask again, or why not.
    pub(crate) fn start(
        core: &Arc<Core>,
        key: &LockKey,
        task: Task,
        terms: &Terms,
        mut pending: Option<Pending>,
        answer: Option<Result<Duration, StoreErrorKind>>,
    ) {
        let now = Instant::now();
        // It may have asked without patience, beside others: the task subscribes for one with a place.
        if let Some(pending) = &mut pending {
            pending.renew(terms);
        }
        let rests_until = answer
            .and_then(Result::ok)
            .map(|retry_after| rest(now, retry_after));
        let contending = Self {
            core: core.clone(),
            key: key.clone(),
            task,
            pending,
            listening: Listening::default(),
            rests_until,
            asked_again: matches!(answer, Some(Err(kind)) if !kind.may_pass()),
            has_yielded: false,
            in_a_row: 0,
            checked: now,
            is_done: false,
            is_moved: false,
        };
        let pauses = matches!(answer, Some(Err(kind)) if kind.may_pass());
        core.spawner.run_near(contending.run(pauses));
    }

    async fn run(mut self, pauses: bool) {
        if pauses {
            tokio::time::sleep(jittered(PAUSE)).await;
        }
        if self.rests_until.is_some() && self.listen(POLL).await {
            self.rests_until = None;
        }
        loop {
            let now = Instant::now();
            let next = self.event(now, |key, task| key.next(task));
            match next.unwrap_or_default() {
                Next::Done => {
                    self.is_done = true;
                    return;
                }
                Next::Wait { until, holds } => {
                    // Its holder may be broken from outside, and learn of that only at its next renewal.
                    if let Some(held) = holds
                        && now >= self.checked + POLL
                    {
                        self.checked = now;
                        self.core.check(&held);
                    }
                    self.idle(until).await;
                }
                Next::Idle { until } => {
                    // No request has a place. It asks at once for the next one, because it hears nothing meanwhile.
                    (self.pending, self.rests_until) = (None, None);
                    self.listening = Listening::default();
                    self.idle(until).await;
                }
                Next::Ask {
                    ticket,
                    terms,
                    after,
                    behind,
                } => match (self.rests_until, after) {
                    (Some(until), _) => self.rest(until).await,
                    (None, Some(after)) if !self.has_yielded => {
                        self.has_yielded = true;
                        self.prepare(&terms);
                        self.listen(LAST_MOMENT).await;
                        self.rests_until = Some(after);
                    }
                    _ => self.ask(ticket, &terms, behind).await,
                },
            }
        }
    }

    /// Something happens to its side of the key. `None`: the key is not in use.
    fn event<T>(&self, now: Instant, event: impl FnOnce(&mut KeyAt<'_>, &Task) -> T) -> Option<T> {
        self.core
            .event(&self.key, now, |key| event(key, &self.task))
    }

    /// Sleeps until a wake-up, the end of a subscription, the time, or a change in this process.
    async fn rest(&mut self, until: Instant) {
        tokio::select! {
            biased; // without chance, a simulation replays
            () = self.listening.woken() => self.rests_until = None,
            () = self.task.work.notified() => {}
            () = tokio::time::sleep_until(until) => self.rests_until = None,
        }
    }

    /// Makes the attempt one of a request with these terms. Returns whether it is new.
    fn prepare(&mut self, terms: &Terms) -> bool {
        // An attempt keeps its mode, by which the store finds its place.
        if let Some(pending) = &mut self.pending
            && pending.attempt().hold.mode == terms.mode
        {
            pending.renew(terms);
            return false;
        }
        let number = self.core.next_number();
        let attempt = attempt(&self.core, &self.key, terms, number);
        self.pending = Some(Pending::one(&self.core, attempt));
        true
    }

    /// Waits until it is woken.
    async fn idle(&mut self, until: Instant) {
        tokio::select! {
            biased; // without chance, a simulation replays
            () = self.task.work.notified() => {}
            () = tokio::time::sleep_until(until) => {}
        }
    }

    /// Asks the store in the place of a request.
    async fn ask(&mut self, ticket: u64, terms: &Terms, behind: usize) {
        (self.rests_until, self.has_yielded) = (None, false);
        if self.prepare(terms) && self.task.only().is_some() {
            // It expects a refusal. So it asks once, and not before and after the subscription.
            self.listen(LAST_MOMENT).await;
        }
        // Further permits may be free: twice as many after each question that was granted at once.
        let more = ((1_usize << self.in_a_row.min(16)) / 2).saturating_sub(1);
        let more = self.ask_more(terms, more.min(behind));
        let pending = self.pending.as_mut().expect("it was made");
        let (answer, more) = tokio::join!(pending.ask(), more);
        let all = more.iter().all(|granted| *granted) && terms.mode.is_permit();
        match answer {
            Ok(Reply::Granted(grants)) => {
                self.asked_again = false;
                let mut granted = pending.granted(&grants, |_| terms, Instant::now());
                match granted.as_mut().and_then(SmallVec::pop) {
                    Some(held) => {
                        self.pending = None;
                        self.listening.granted();
                        give(&self.core, held, self.task.only());
                        self.in_a_row = if all { self.in_a_row + 1 } else { 0 };
                    }
                    None => self.failed(ticket, answered_late()).await,
                }
            }
            Ok(Reply::Refused { retry_after, .. }) => {
                (self.asked_again, self.in_a_row) = (false, 0);
                let now = Instant::now();
                let until = now.checked_add(retry_after);
                self.event(now, |key, task| key.line_refused(task, until));
                if !self.listen(retry_after.min(POLL)).await {
                    self.rests_until = Some(rest(now, retry_after));
                }
            }
            Err(error) => self.failed(ticket, error).await,
        }
    }

    /// Asks for further permits, without places in line. Returns which were granted.
    fn ask_more(&self, terms: &Terms, more: usize) -> impl Future<Output = Vec<bool>> + use<> {
        let (core, terms) = (self.core.clone(), terms.clone());
        let attempts = (0..more).map(|_| {
            let attempt = attempt(&core, &self.key, &terms, core.next_number());
            Pending::one(&core, attempt.patience(None))
        });
        let attempts: Vec<_> = attempts.collect();
        let asked = attempts.into_iter().map(move |mut pending| {
            let (core, terms) = (core.clone(), terms.clone());
            async move {
                let Ok(Reply::Granted(grants)) = pending.ask().await else {
                    return false;
                };
                let held = pending
                    .granted(&grants, |_| &terms, Instant::now())
                    .and_then(|mut holds| holds.pop());
                held.is_some_and(|held| give(&core, held, None))
            }
        });
        join_all(asked.collect::<Vec<_>>())
    }

    /// A question has failed. An unreachable or silent store is asked once more. A store that cannot serve now, or whose replicas do
    /// not acknowledge, is asked again after a pause, for as long as a request waits. Otherwise the request has the error, and the next
    /// one its turn.
    async fn failed(&mut self, ticket: u64, error: StoreError) {
        if error.kind() == StoreErrorKind::Unanswered {
            // It may still be granted, so it is withdrawn, and the next question has another id.
            self.pending = None;
            if self.task.only().is_some() {
                // A waiter in a queue listens on the channel of its id.
                self.listening = Listening::default();
            }
        }
        let again = match error.kind() {
            StoreErrorKind::Unanswered | StoreErrorKind::Unreachable => {
                !std::mem::replace(&mut self.asked_again, true)
            }
            kind if kind.may_pass() => {
                self.asked_again = false;
                tokio::time::sleep(jittered(PAUSE)).await;
                true
            }
            _ => false,
        };
        if !again {
            self.event(Instant::now(), |key, task| {
                key.failed(task.side, ticket, error.into());
            });
        }
    }

    /// Subscribes, unless it is subscribed, and waits for that for a while. Returns whether to ask again: something may have happened
    /// before the subscription.
    async fn listen(&mut self, time: Duration) -> bool {
        let Some(pending) = &self.pending else {
            return false;
        };
        let until = Instant::now() + time;
        let again = self
            .listening
            .begin(&self.core, pending.attempt(), until, &self.task.work)
            .await;
        let listens = self.listening.is_on();
        self.event(Instant::now(), |key, task| key.listens(task, listens));
        again
    }
}

impl Drop for Contending {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        if !self.is_moved {
            // It begins anew, because its timers belong to the runtime that has ended.
            // An unanswered question is withdrawn. The next one has another id, and in a fair queue another channel.
            let pending = self.pending.take().filter(|pending| !pending.is_asking());
            let listening = pending
                .as_ref()
                .map(|_| std::mem::take(&mut self.listening));
            let moved = Self {
                pending,
                listening: listening.unwrap_or_default(),
                core: self.core.clone(),
                key: self.key.clone(),
                task: self.task.clone(),
                is_moved: true,
                ..*self
            };
            self.core.spawner.run(moved.run(false));
            return;
        }
        let error = StoreError::new(
            StoreErrorKind::Unanswered,
            "the task that asks for the key has ended with its runtime",
        );
        let error = LockError::Unavailable(error);
        self.event(Instant::now(), |key, task| key.abandoned(task, &error));
    }
}

/// Gives a hold to the first request that it fits, or back. Returns whether one has it.
fn give(core: &Arc<Core>, held: Arc<crate::hold::Held>, fair: Option<u64>) -> bool {
    let now = Instant::now();
    let given = core.event(&held.hold.key, now, |key| key.given(&held, fair));
    let is_taken = given == Some(true);
    if !is_taken {
        core.release_unwanted(held);
    }
    is_taken
}

/// When to ask again after a refusal, unless a wake-up comes first.
fn rest(refused: Instant, retry_after: Duration) -> Instant {
    // One more millisecond, because the store rounds the remaining time down.
    refused + jittered(POLL).min(retry_after.saturating_add(Duration::from_millis(1)))
}
