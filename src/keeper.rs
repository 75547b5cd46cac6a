//! The keeper: the one background task of a client.
//!
//! It renews holds in batches at a third of their lease, says when one is lost, answers owner checks, and drives to its
//! end whatever a dropped future or guard has left behind. It has no timer and no task per hold.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::error::LockError;
use crate::store::{DynStore, Record, Renewal, Standing};
use crate::telemetry;

mod calendar;
mod checks;
mod driven;
mod live;
mod release;

use calendar::{Batch, Calendar};
use checks::Checks;
pub(crate) use driven::{Driven, Job};
pub(crate) use live::{LiveHold, Phase};

/// How many holds one question names: few enough to keep a single-threaded server responsive.
const BATCH: usize = 100;

/// The pause after a renewal failed, before the next try.
const RENEWAL_RETRY: Duration = Duration::from_millis(100);

/// The pause after a release or a check failed, before the next try; it doubles.
const FIRST_BACKOFF: Duration = Duration::from_millis(20);

/// A handle on the task. The task ends when the last handle is gone and its work is done.
#[derive(Clone)]
pub(crate) struct Keeper {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn DynStore>,
    /// Told of every hold that is lost, outside the mutex.
    on_lost: OnLost,
    state: Mutex<State>,
    /// There is something for the task to look at.
    work: Notify,
    /// The task has nothing left to do but renew.
    drained: Notify,
}

#[derive(Default)]
struct State {
    calendar: Calendar,
    /// What dropped futures and guards have left.
    jobs: Vec<Job>,
    /// How many of them the task is driving.
    driving: usize,
    checks: Checks,
    task: Option<JoinHandle<()>>,
    orphaned: bool,
}

type OnLost = Box<dyn Fn(&Arc<LiveHold>) + Send + Sync>;

impl Keeper {
    pub(crate) fn new(store: Arc<dyn DynStore>, on_lost: OnLost) -> Self {
        Self {
            handle: Arc::new(Handle {
                shared: Arc::new(Shared {
                    store,
                    on_lost,
                    state: Mutex::default(),
                    work: Notify::new(),
                    drained: Notify::new(),
                }),
            }),
        }
    }

    pub(crate) fn store(&self) -> Arc<dyn DynStore> {
        self.handle.shared.store.clone()
    }

    /// Renews `live` until it is forgotten, and says when it is lost.
    pub(crate) fn keep(&self, live: &Arc<LiveHold>) {
        let shared = &self.handle.shared;
        let mut state = shared.state();
        shared.ensure_running(&mut state);
        if state.calendar.enter(live) {
            shared.work.notify_one();
        }
    }

    /// Ends renewal for a release that is about to be sent; false if the hold is lost already.
    pub(crate) fn begin_release(&self, live: &LiveHold) -> bool {
        let mut state = self.handle.shared.state();
        state.calendar.remove(live);
        live.begin_release()
    }

    /// Releases in the store, trying again until it answers or the lease is over anyway.
    ///
    /// To be called after [`Keeper::begin_release`]. A `record` is stored in the same step. `until_asked` is dropped when the store was asked once, whatever it
    /// answered.
    ///
    /// # Errors
    ///
    /// `Lost` if the store did not carry the hold any more; `Unavailable` if nobody can say.
    pub(crate) async fn release(
        store: Arc<dyn DynStore>,
        live: Arc<LiveHold>,
        record: Option<Record>,
        until_asked: impl Send,
    ) -> Result<(), LockError> {
        let result = release::release(store, &live, record, until_asked).await;
        if matches!(result, Err(LockError::Lost)) && !live.has_ended() {
            telemetry::lost(&live, "the store did not carry it at its release");
        }
        live.finish(match result {
            Ok(()) => Phase::Released,
            Err(_) => Phase::Lost,
        });
        result
    }

    /// Asks the store whether it carries the hold now. Everybody who asks at about the same time shares one question.
    pub(crate) async fn check(&self, live: &Arc<LiveHold>) -> Result<(), LockError> {
        let (answer, answered) = oneshot::channel();
        {
            let shared = &self.handle.shared;
            let mut state = shared.state();
            state.checks.add(live, answer);
            shared.ensure_running(&mut state);
        }
        self.handle.shared.work.notify_one();
        match answered.await {
            Ok(Ok(Standing::Held)) => Ok(()),
            Ok(Ok(Standing::Gone)) => match live.phase() {
                // It went on after us and its release overtook the question: that release speaks for us too.
                Phase::Released => Ok(()),
                Phase::Releasing if live.ended().await == Phase::Released => Ok(()),
                _ => {
                    let shared = &self.handle.shared;
                    shared.lose(live, "the store does not carry it any more");
                    Err(LockError::Lost)
                }
            },
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(LockError::Shutdown),
        }
    }

    /// Drives `job` to its end in the background. Never blocks; works outside a runtime.
    pub(crate) fn adopt(&self, job: Job) {
        let shared = &self.handle.shared;
        {
            let mut state = shared.state();
            state.jobs.push(job);
            shared.ensure_running(&mut state);
        }
        shared.work.notify_one();
    }

    /// Gives up every live hold: it is lost to those who share it, and released in the store.
    pub(crate) fn abandon_all(&self) {
        let shared = &self.handle.shared;
        let all = shared.state().calendar.all();
        for live in all {
            shared.lose(&live, "the client was shut down");
            let store = self.store();
            self.adopt(Box::pin(async move {
                let _ = release::release(store, &live, None, ()).await;
            }));
        }
    }

    /// Waits until every adopted job is done.
    pub(crate) async fn drained(&self) {
        let shared = &self.handle.shared;
        // What was adopted outside a runtime, or left by one that has ended, is still to be begun.
        shared.ensure_running(&mut shared.state());
        loop {
            let drained = shared.drained.notified();
            tokio::pin!(drained);
            drained.as_mut().enable();
            {
                let state = shared.state();
                if state.jobs.is_empty() && state.driving == 0 {
                    return;
                }
            }
            drained.await;
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.state().orphaned = true;
        self.shared.work.notify_one();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the task, or starts it again on this runtime if the one it ran on is gone.
    fn ensure_running(self: &Arc<Self>, state: &mut State) {
        if state.task.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            state.driving = 0;
            state.checks.done();
            state.calendar.forget_alarm();
            state.task = Some(runtime.spawn(self.clone().run()));
        }
    }

    async fn run(self: Arc<Self>) {
        let mut running = FuturesUnordered::<Job>::new();
        while let Some(alarm) = self.look(&mut running) {
            tokio::select! {
                () = self.work.notified() => {}
                Some(()) = running.next() => {}
                () = tokio::time::sleep_until(alarm) => {}
            }
        }
    }

    fn lose(&self, live: &Arc<LiveHold>, reason: &'static str) {
        self.state().calendar.remove(live);
        if live.lose() {
            telemetry::lost(live, reason);
            (self.on_lost)(live);
        }
    }

    /// Takes on all there is to do and says when to look again; `None` when there will never be more.
    fn look(self: &Arc<Self>, running: &mut FuturesUnordered<Job>) -> Option<Instant> {
        let mut state = self.state();
        for job in std::mem::take(&mut state.jobs) {
            state.driving += 1;
            let shared = self.clone();
            running.push(Box::pin(async move {
                job.await;
                let mut state = shared.state();
                state.driving -= 1;
                if state.driving == 0 {
                    shared.drained.notify_waiters();
                }
            }));
        }
        if let Some(checks) = state.checks.next() {
            running.push(Box::pin(self.clone().answer(checks)));
        }
        let mut lost = Vec::new();
        for batch in state.calendar.due(Instant::now(), &mut lost) {
            running.push(Box::pin(self.clone().renew(batch)));
        }
        if !lost.is_empty() {
            drop(state);
            for live in &lost {
                self.lose(live, "its lease was over before it was renewed");
            }
            state = self.state();
        }
        if state.orphaned && running.is_empty() {
            state.task = None;
            return None;
        }
        Some(state.calendar.set_alarm(Instant::now()))
    }

    async fn renew(self: Arc<Self>, batch: Batch) {
        let renewals = batch
            .iter()
            .map(|(live, lease)| Renewal {
                hold: live.hold.clone(),
                lease: *lease,
            })
            .collect();
        let sent = Instant::now();
        let answers = self.store.clone().renew(renewals).await;
        let standings = match answers {
            Ok(standings) => standings,
            Err(error) => {
                tracing::warn!(%error, holds = batch.len(), "could not renew");
                for (live, _) in &batch {
                    telemetry::not_renewed(live, "failed");
                }
                let mut state = self.state();
                for (live, lease) in &batch {
                    state
                        .calendar
                        .postpone(live, Instant::now() + RENEWAL_RETRY.min(*lease / 10));
                }
                return;
            }
        };
        // Outside the mutex: recorders are foreign code.
        for ((live, _), standing) in batch.iter().zip(&standings) {
            match standing {
                Standing::Held => telemetry::renewed(live),
                Standing::Gone => telemetry::not_renewed(live, "lost"),
            }
        }
        let mut lost = Vec::new();
        {
            let mut state = self.state();
            for ((live, lease), standing) in batch.iter().zip(standings) {
                match standing {
                    Standing::Held => {
                        live.renewed(sent, *lease);
                        state
                            .calendar
                            .postpone(live, sent + live.lease.duration() / 3);
                    }
                    Standing::Gone => lost.push(live),
                }
            }
        }
        for live in lost {
            self.lose(live, "the store does not carry it any more");
        }
    }

    async fn answer(self: Arc<Self>, checks: Vec<checks::Check>) {
        checks::answer(self.store.clone(), checks).await;
        self.state().checks.done();
        self.work.notify_one();
    }
}

fn in_batches<T>(items: Vec<T>) -> Vec<Vec<T>> {
    let mut items = items.into_iter();
    let mut batches = Vec::new();
    loop {
        let batch: Vec<T> = items.by_ref().take(BATCH).collect();
        if batch.is_empty() {
            return batches;
        }
        batches.push(batch);
    }
}
