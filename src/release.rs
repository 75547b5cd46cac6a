//! What a client has in this process, and the end of its holds: from the last share to the store's answer.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::error::{LockError, StoreError};
use crate::hold::{Held, Question};
use crate::limits::ANSWER_TIME;
use crate::lock::{HoldId, LockKey};
use crate::spawn::Spawner;
use crate::store::{BATCH, HoldStatus, Released, Renewal, Store, undecided};
use crate::sync::{Mutex, call_outside};
use crate::table::{KeyAt, NewShare, Others, Out, Table};
use crate::telemetry::{self, Events, Seldom};

mod ending;
mod kept;
mod releasing;
mod share;
#[cfg(test)]
mod tests;

use ending::Ending;
use kept::Kept;
pub(crate) use releasing::ShareRelease;
use releasing::end_all;
pub(crate) use share::{Share, Shares};

/// What a client has in this process: its store, its table, and where its background work runs.
pub(crate) struct Core {
    pub(crate) id: Uuid,
    numbers: AtomicU64,
    pub(crate) store: Store,
    pub(crate) table: Table,
    pub(crate) agenda: Arc<Agenda>,
    pub(crate) spawner: Spawner,
    /// Cancelled by the shutdown: no request is granted any more.
    pub(crate) closing: CancellationToken,
    pub(crate) events: Events,
    /// How long the store keeps a counter of tokens.
    pub(crate) token_retention: Option<Duration>,
    /// The log of losses: one line a second.
    losses: Seldom,
    /// Limits the releases that no caller waits for and that run near their callers, where they may stand still. The others run in
    /// the background.
    near: Arc<Semaphore>,
    /// Limits those of each partition in the background: guards that are dropped together are released in turn, and a partition
    /// that is down does not delay another.
    places: Mutex<HashMap<u16, Arc<Semaphore>>>,
}

/// What the keeper has to do, for those who give it work.
pub(crate) struct Agenda {
    origin: Instant,
    /// When the keeper wakes, in nanoseconds since the origin.
    alarm: AtomicU64,
    pub(crate) work: Notify,
    /// The holds to ask the store about, and since when.
    pub(crate) checks: Mutex<Vec<(Arc<Held>, Instant)>>,
}

impl Core {
    pub(crate) fn new(
        id: Uuid,
        store: Store,
        table: Table,
        spawner: Spawner,
        events: Events,
        token_retention: Option<Duration>,
    ) -> Self {
        Self {
            id,
            numbers: AtomicU64::new(1),
            store,
            table,
            agenda: Arc::new(Agenda {
                origin: Instant::now(),
                alarm: AtomicU64::new(u64::MAX),
                work: Notify::new(),
                checks: Mutex::default(),
            }),
            spawner,
            closing: CancellationToken::new(),
            events,
            token_retention,
            losses: Seldom::every(Duration::from_secs(1)),
            near: Arc::new(Semaphore::new(BATCH)),
            places: Mutex::default(),
        }
    }

    /// A number that this client has not used: of a request, an attempt, a hold.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn hold_id(&self, number: u64) -> HoldId {
        HoldId::new(self.id, number)
    }

    /// Something happens to a key that is in use, which has effects on others. `None`: it is not in use.
    pub(crate) fn event<T>(
        self: &Arc<Self>,
        key: &LockKey,
        now: Instant,
        event: impl FnOnce(&mut KeyAt<'_>) -> T,
    ) -> Option<T> {
        let (value, out) = self.table.event(key, now, event)?;
        self.run(out);
        Some(value)
    }

    /// The same for a key that may be new.
    pub(crate) fn entry<T>(
        self: &Arc<Self>,
        key: &LockKey,
        now: Instant,
        event: impl FnOnce(&mut KeyAt<'_>) -> T,
    ) -> T {
        let (value, out) = self.table.entry(key, now, event);
        self.run(out);
        value
    }

    /// Executes the effects of an event, after the mutex is unlocked. A grant that its request does not want any more ends.
    pub(crate) fn run(self: &Arc<Self>, out: Out) {
        if let Some(visit) = out.visit {
            self.agenda.visit(visit);
        }
        if let Some(others) = out.others {
            self.run_others(*others);
        }
    }

    fn run_others(self: &Arc<Self>, others: Others) {
        others.wake.iter().for_each(|task| task.notify_one());
        for told in others.tell {
            let handed_over = told.answer.as_ref().ok().filter(|grant| grant.handed_over);
            let handed_over = handed_over.map(|grant| grant.held.clone());
            match told.slot.give(told.ticket, told.answer) {
                Ok(waker) => {
                    if let Some(waker) = waker {
                        call_outside("a waker", || waker.wake());
                    }
                    if let Some(held) = handed_over {
                        call_outside("a recorder", || {
                            telemetry::handed_over(&held.route, held.hold.mode);
                        });
                    }
                }
                Err(Ok(grant)) => drop(self.share(grant)),
                Err(Err(_)) => {}
            }
        }
        for grant in others.untaken {
            drop(self.share(grant));
        }
    }

    /// The share that a grant describes.
    pub(crate) fn share(self: &Arc<Self>, grant: NewShare) -> Share {
        Share::new(self.clone(), grant)
    }

    /// A hold is lost. Returns `false` if it has ended, or a release decides that.
    pub(crate) fn lose(self: &Arc<Self>, held: &Arc<Held>, reason: &'static str) -> bool {
        let is_lost = held.lose();
        if is_lost {
            self.event(&held.hold.key, Instant::now(), |key| key.lost(held));
            self.report_loss(held, reason);
        }
        is_lost
    }

    fn report_loss(&self, held: &Held, reason: &'static str) {
        telemetry::lost(&self.events, &self.losses, &held.route, &held.hold, reason);
    }

    /// Asks the store whether it carries a hold: [`Held::verdict`] has the answer. Many callers share one question.
    pub(crate) fn check(self: &Arc<Self>, held: &Arc<Held>) {
        let now = Instant::now();
        // Numbered before it is asked: a share that ends meanwhile needs a later one.
        let question = held.question();
        match self.store.holds_now(&held.hold) {
            Some(status) => {
                if held.answered(question, status, None) {
                    self.lose(held, "gone");
                }
            }
            None => {
                self.agenda.checks.lock().push((held.clone(), now));
                self.agenda.work.notify_one();
            }
        }
    }

    /// Waits for the verdict about a share that ended after the question `last`, for as long as a caller waits for a release.
    pub(crate) async fn confirmed(held: Arc<Held>, last: Question) -> Result<(), LockError> {
        let confirmed = tokio::time::timeout(ANSWER_TIME, held.confirmed(last)).await;
        confirmed.unwrap_or_else(|_| Err(undecided().into()))
    }

    /// The store has answered the release of a hold, or will not.
    fn freed(self: &Arc<Self>, held: Arc<Held>, released: Released) {
        let (key, now) = (&held.hold.key, Instant::now());
        let pause = self.event(key, now, |key| key.released(&held, released));
        if let Some(pause) = pause.flatten() {
            let core = self.clone();
            self.spawner.run(async move {
                tokio::time::sleep(pause).await;
                core.freed(held, HoldStatus::Held.into());
            });
        }
    }

    /// Work that is driven to its end, also if its caller is dropped.
    pub(crate) fn kept<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Kept<T> {
        Kept::new(self.clone(), work)
    }

    /// A hold that no request wants is released.
    pub(crate) fn release_unwanted(self: &Arc<Self>, held: Arc<Held>) {
        let counted = self.spawner.tracker.token();
        Ending::new(self.clone(), held, false, Instant::now(), counted).in_background();
    }

    /// A place among the releases of a partition that no caller waits for.
    fn place(&self, partition: u16) -> Arc<Semaphore> {
        let mut places = self.places.lock();
        let all = || Arc::new(Semaphore::new(BATCH));
        places.entry(partition).or_insert_with(all).clone()
    }

    /// Locks every mutex of the client that belongs to no key.
    #[cfg(test)]
    pub(crate) fn lock_all(&self) -> impl Sized {
        let (checks, places) = (self.agenda.checks.lock(), self.places.lock());
        (checks, places, self.losses.lock())
    }

    /// Has the store keep holds for this time at least. A later renewal does not shorten it.
    async fn extend(
        self: Arc<Self>,
        holds: Vec<Arc<Held>>,
        until: Instant,
    ) -> Result<(), LockError> {
        let lease = until.saturating_duration_since(Instant::now());
        let partitions = self.store.by_partition(holds, |held| &held.hold.key);
        for holds in partitions.values().flat_map(|holds| holds.chunks(BATCH)) {
            holds.iter().for_each(|held| held.asks_until(until));
            let renewals = holds.iter();
            let renewals = renewals.map(|held| Renewal::new(held.hold.clone(), lease));
            let questions: Vec<_> = holds.iter().map(|held| held.question()).collect();
            let sent = Instant::now();
            let answer = self.store.renew(renewals.collect()).answer().await;
            if answer.as_ref().is_err_and(StoreError::is_without_effect) {
                holds.iter().for_each(|held| held.was_not_asked());
            }
            for ((held, question), status) in holds.iter().zip(questions).zip(answer?) {
                // A store does not shorten a lease.
                let renewed = (lease > held.lease.duration()).then_some((sent, lease));
                if held.answered(question, status, renewed) {
                    self.lose(held, "gone");
                }
                match status {
                    HoldStatus::Held => {}
                    HoldStatus::Gone => return Err(LockError::Lost),
                    HoldStatus::Unknown => return Err(undecided().into()),
                }
            }
        }
        Ok(())
    }

    /// The minimum of these holds is over: they are released.
    pub(crate) fn release_left(self: &Arc<Self>, holds: Vec<Arc<Held>>) {
        let (now, counted) = (Instant::now(), &self.spawner.tracker);
        let end = |held| Ending::new(self.clone(), held, false, now, counted.token());
        let ends = holds.into_iter().map(end).collect();
        self.spawner.run(end_all(self.clone(), ends));
    }

    /// Gives up every hold: it is lost for its guards, and released in the store, or left there until the end of its minimum.
    pub(crate) fn abandon_all(self: &Arc<Self>) {
        let (holds, outs) = self.table.close();
        outs.into_iter().for_each(|out| self.run(out));
        let core = self.clone();
        self.spawner.run(async move {
            let mut ends = Vec::new();
            for holds in holds.chunks(BATCH) {
                ends.extend(holds.iter().filter_map(|held| core.abandon(held)));
                tokio::task::yield_now().await;
            }
            end_all(core, ends).await;
        });
    }

    /// A hold is lost by a shutdown. One whose release has begun is left to its guards, and one whose minimum is not over to the store.
    fn abandon(self: &Arc<Self>, held: &Arc<Held>) -> Option<Ending> {
        let (now, counted) = (Instant::now(), self.spawner.tracker.token());
        let is_left = !self.lose(held, "shutdown") || held.leave(now).is_some();
        (!is_left).then(|| Ending::new(self.clone(), held.clone(), false, now, counted))
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.spawner.stop.cancel();
    }
}

impl Agenda {
    /// The keeper must visit a hold at this time.
    fn visit(&self, at: Instant) {
        let at = self.nanos(at);
        if at < self.alarm.load(Ordering::Acquire)
            && self.alarm.fetch_min(at, Ordering::AcqRel) > at
        {
            self.work.notify_one();
        }
    }

    /// The keeper looks at all visits: one that is placed meanwhile wakes it.
    pub(crate) fn begin(&self) {
        self.alarm.store(u64::MAX, Ordering::Release);
    }

    /// The keeper wakes at this time.
    pub(crate) fn set(&self, alarm: Instant) {
        self.alarm.fetch_min(self.nanos(alarm), Ordering::AcqRel);
    }

    fn nanos(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.origin);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}
