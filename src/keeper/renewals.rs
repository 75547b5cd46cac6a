//! The task that renews.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Job;
use super::calendar::{Batch, Calendar};
use super::live::LiveHold;
use super::outage::Outage;
use super::task::Task;
use super::undecided;
use crate::error::StoreError;
use crate::store::{DynStore, HoldStatus, Renewal};
use crate::sync::{Mutex, MutexGuard};
use crate::telemetry;

/// The pause after a renewal failed, before the next try.
const RETRY: Duration = Duration::from_millis(100);

pub(super) type OnLost = Box<dyn Fn(&Arc<LiveHold>) + Send + Sync>;

/// Renews every live hold of a client, and finds those that are lost.
pub(super) struct Renewals {
    store: Arc<dyn DynStore>,
    /// Where the task runs, whatever the store says.
    runtime: Option<runtime::Handle>,
    /// Told of every hold that is lost, outside the mutex.
    on_lost: OnLost,
    state: Mutex<State>,
    /// There is something for the task to look at.
    work: Notify,
}

#[derive(Default)]
struct State {
    calendar: Calendar,
    task: Task,
    /// It runs on a runtime that does not end with the callers'.
    apart: bool,
    outage: Outage,
    retired: bool,
}

impl Renewals {
    pub(super) fn new(
        store: Arc<dyn DynStore>,
        runtime: Option<runtime::Handle>,
        on_lost: OnLost,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            runtime,
            on_lost,
            state: Mutex::default(),
            work: Notify::new(),
        })
    }

    /// Renews `live` from now on, for a caller on the runtime `here`.
    pub(super) fn begin(self: &Arc<Self>, live: &Arc<LiveHold>, here: Option<&runtime::Handle>) {
        let replaced = {
            let mut state = self.state();
            self.ensure_running(&mut state);
            if state.calendar.enter(live) {
                self.work.notify_one();
            }
            match state.apart {
                true => None,
                false => state.task.note(here),
            }
        };
        drop(replaced);
    }

    /// Renews `live` no more, since it is about to be released; false if it is lost already.
    pub(super) fn end(&self, live: &LiveHold) -> bool {
        let mut state = self.state();
        state.calendar.remove(live);
        live.begin_release()
    }

    /// Says that `live` is lost, if it has not ended.
    pub(super) fn lose(&self, live: &Arc<LiveHold>, reason: &'static str) {
        self.state().calendar.remove(live);
        if live.lose() {
            telemetry::lost(&live.route, &live.hold, reason);
            (self.on_lost)(live);
        }
    }

    /// Every live hold.
    pub(super) fn all(&self) -> Vec<Arc<LiveHold>> {
        self.state().calendar.all()
    }

    /// Nothing more will come: the task ends.
    pub(super) fn retire(&self) {
        self.state().retired = true;
        self.work.notify_one();
    }

    /// Starts the task, or starts it again if the runtime that it ran on is gone.
    fn ensure_running(self: &Arc<Self>, state: &mut State) {
        if state.task.is_running() {
            return;
        }
        let apart = self.apart();
        state.apart = apart.is_some();
        if let Some(runtime) = apart.or_else(|| runtime::Handle::try_current().ok()) {
            self.start(state, &runtime);
        }
    }

    /// A runtime that does not end with the callers'.
    fn apart(&self) -> Option<runtime::Handle> {
        let given = self.runtime.clone();
        given.or_else(|| self.store.renewal_runtime())
    }

    fn start(self: &Arc<Self>, state: &mut State, runtime: &runtime::Handle) {
        state.calendar.forget_alarm();
        let renewals = self.clone();
        let ended = move || renewals.ended();
        state.task.start(runtime, self.clone().run(), ended);
    }

    /// The task has ended. If it was dropped with its runtime, another takes over.
    fn ended(self: &Arc<Self>) {
        let mut state = self.state();
        let Some(spare) = state.task.ended() else {
            return;
        };
        let apart = self.apart().filter(|_| state.apart);
        // After a panic, which only foreign code has, it goes on here.
        let here = || runtime::Handle::try_current().ok();
        if let Some(runtime) = apart.or(spare).or_else(here) {
            self.start(&mut state, &runtime);
        }
    }

    async fn run(self: Arc<Self>) {
        let mut running = FuturesUnordered::<Job>::new();
        while let Some(alarm) = self.look(&mut running) {
            tokio::select! {
                // Without chance, a simulation replays; each turn looks at everything, so nothing starves.
                biased;
                Some(()) = running.next() => {}
                () = self.work.notified() => {}
                () = tokio::time::sleep_until(alarm) => {}
            }
        }
    }

    /// Begins all renewals that are due and says when to look again; `None` when there will never be more.
    fn look(self: &Arc<Self>, running: &mut FuturesUnordered<Job>) -> Option<Instant> {
        let mut lost = Vec::new();
        let part = |live: &LiveHold| self.store.part(&live.hold.key);
        let due = self.state().calendar.due(Instant::now(), part, &mut lost);
        for batch in due {
            running.push(Box::pin(self.clone().renew(batch)));
        }
        for live in &lost {
            self.lose(live, live.why_over());
        }
        let mut state = self.state();
        if state.retired && running.is_empty() {
            state.task.finish();
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
        let statuses = match self.store.clone().renew(renewals).await {
            Ok(statuses) => statuses,
            Err(error) => return self.not_renewed(&batch, &error),
        };
        let (mut renewed, mut lost, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
        for ((live, lease), status) in batch.into_iter().zip(statuses) {
            match status {
                HoldStatus::Held => renewed.push((live, lease)),
                HoldStatus::Gone => lost.push(live),
                HoldStatus::Unknown => unknown.push((live, lease)),
            }
        }
        if !unknown.is_empty() {
            self.not_renewed(&unknown, &undecided());
        }
        // Outside the mutex: recorders are foreign code.
        for (live, _) in &renewed {
            telemetry::renewed(&live.route, live.hold.mode, || live.overdue());
        }
        for live in &lost {
            telemetry::not_renewed(&live.route, live.hold.mode, "lost");
        }
        let news = {
            let mut state = self.state();
            for (live, lease) in &renewed {
                live.renewed(sent, *lease);
                let next = sent + live.lease.duration() / 3;
                state.calendar.postpone(live, next);
            }
            let answered = renewed.iter().map(|(live, _)| live).chain(&lost);
            state.outage.answered(answered, Instant::now())
        };
        if let Some(news) = news {
            news.say(None);
        }
        for live in &lost {
            self.lose(live, "the store does not carry it any more");
        }
    }

    /// The store did not say of these whether they are renewed: each deadline stays as it is, and renewal is tried again
    /// soon.
    fn not_renewed(&self, batch: &Batch, error: &StoreError) {
        for (live, _) in batch {
            telemetry::not_renewed(&live.route, live.hold.mode, "failed");
        }
        let now = Instant::now();
        let news = {
            let mut state = self.state();
            for (live, lease) in batch {
                let next = now + RETRY.min(*lease / 10);
                state.calendar.postpone(live, next);
            }
            let failed = batch.iter().map(|(live, _)| live);
            state.outage.failed(failed, now)
        };
        if let Some(news) = news {
            news.say(Some(error));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}
