//! The task that does what callers have left, or wait for together.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::runtime;
use tokio::sync::{Notify, oneshot};

use super::Job;
use super::checks::{self, Checks};
use super::live::LiveHold;
use super::task::Task;
use crate::error::StoreError;
use crate::store::{DynStore, HoldStatus};
use crate::sync::{Mutex, MutexGuard};

/// Jobs that are driven to their end, and owner checks.
pub(super) struct Errands {
    store: Arc<dyn DynStore>,
    state: Mutex<State>,
    /// There is something for the task to look at.
    work: Notify,
    /// No job is left.
    drained: Notify,
}

#[derive(Default)]
struct State {
    /// What dropped futures and guards have left.
    jobs: Vec<Job>,
    /// How many of them the task is driving.
    driving: usize,
    checks: Checks,
    task: Task,
    retired: bool,
}

impl Errands {
    pub(super) fn new(store: Arc<dyn DynStore>) -> Arc<Self> {
        Arc::new(Self {
            store,
            state: Mutex::default(),
            work: Notify::new(),
            drained: Notify::new(),
        })
    }

    /// Is there for whatever will come, on a runtime that has something to keep.
    pub(super) fn begin(self: &Arc<Self>, here: Option<&runtime::Handle>) {
        let replaced = {
            let mut state = self.state();
            self.ensure_running(&mut state);
            state.task.note(here)
        };
        drop(replaced);
    }

    /// Drives `job` to its end. Never blocks; works outside a runtime.
    pub(super) fn adopt(self: &Arc<Self>, job: Job) {
        {
            let mut state = self.state();
            state.jobs.push(job);
            self.ensure_running(&mut state);
        }
        self.work.notify_one();
    }

    /// Asks the store whether it carries the hold.
    pub(super) async fn check(
        self: &Arc<Self>,
        live: &Arc<LiveHold>,
    ) -> Result<HoldStatus, StoreError> {
        let part = self.store.part(&live.hold.key);
        loop {
            let (answer, answered) = oneshot::channel();
            {
                let mut state = self.state();
                state.checks.add(part, live, answer);
                self.ensure_running(&mut state);
            }
            self.work.notify_one();
            // The question is lost only with the runtime that it was asked on: it is asked again on this one.
            if let Ok(standing) = answered.await {
                return standing;
            }
        }
    }

    /// Waits until every job is done.
    pub(super) async fn drained(self: &Arc<Self>) {
        loop {
            let drained = self.drained.notified();
            tokio::pin!(drained);
            drained.as_mut().enable();
            {
                let mut state = self.state();
                // What was adopted outside a runtime, or left by one that has ended, is still to be begun.
                self.ensure_running(&mut state);
                if state.jobs.is_empty() && state.driving == 0 {
                    return;
                }
            }
            drained.await;
        }
    }

    /// Nothing more will come: the task ends when it has done what there is.
    pub(super) fn retire(&self) {
        self.state().retired = true;
        self.work.notify_one();
    }

    /// Starts the task, or starts it again on this runtime if the one it ran on is gone.
    fn ensure_running(self: &Arc<Self>, state: &mut State) {
        if state.task.is_running() {
            return;
        }
        if let Ok(runtime) = runtime::Handle::try_current() {
            self.start(state, &runtime);
        }
    }

    fn start(self: &Arc<Self>, state: &mut State, runtime: &runtime::Handle) {
        state.driving = 0;
        let errands = self.clone();
        let ended = move || errands.ended();
        state.task.start(runtime, self.clone().run(), ended);
    }

    /// The task has ended. If it was dropped with its runtime, another takes over, and whoever asked asks again.
    fn ended(self: &Arc<Self>) {
        let abandoned = {
            let mut state = self.state();
            let Some(spare) = state.task.ended() else {
                return;
            };
            state.driving = 0;
            let abandoned = state.checks.abandon();
            // After a panic, which only foreign code has, it goes on here.
            if let Some(runtime) = spare.or_else(|| runtime::Handle::try_current().ok()) {
                self.start(&mut state, &runtime);
            }
            abandoned
        };
        self.drained.notify_waiters();
        drop(abandoned);
    }

    async fn run(self: Arc<Self>) {
        let mut running = FuturesUnordered::<Job>::new();
        while self.look(&mut running) {
            tokio::select! {
                // Without chance, a simulation replays; each turn looks at everything, so nothing starves.
                biased;
                Some(()) = running.next() => {}
                () = self.work.notified() => {}
            }
        }
    }

    /// Takes on all there is to do; false when there will never be more.
    fn look(self: &Arc<Self>, running: &mut FuturesUnordered<Job>) -> bool {
        let mut state = self.state();
        for job in std::mem::take(&mut state.jobs) {
            state.driving += 1;
            running.push(Box::pin(self.clone().drive(job)));
        }
        for (part, checks) in state.checks.next() {
            running.push(Box::pin(self.clone().answer(part, checks)));
        }
        if state.retired && running.is_empty() {
            state.task.finish();
            return false;
        }
        true
    }

    async fn drive(self: Arc<Self>, job: Job) {
        // One that was begun on a runtime that has ended meanwhile panics: its timers are gone. The others go on.
        if AssertUnwindSafe(job).catch_unwind().await.is_err() {
            tracing::warn!("what was left in the background has ended in a panic; leases will");
        }
        let mut state = self.state();
        state.driving -= 1;
        if state.driving == 0 {
            self.drained.notify_waiters();
        }
    }

    async fn answer(self: Arc<Self>, part: u16, checks: Vec<checks::Check>) {
        let undecided = checks::answer(&self.store, checks).await;
        self.state().checks.done(part);
        self.work.notify_one();
        // Other checks of the part do not wait for these.
        checks::ask_again(&self.store, undecided).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}
