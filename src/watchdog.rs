//! The watchdog: renews holds in batches at a third of their lease, and finds lost holds.
//!
//! Renewals are one task, without a timer or a task per hold, on the store's runtime if it has one, so that holds outlive a
//! runtime whose workers are all busy.

use std::error::Error;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::cleanup::{CleanupTasks, Job};
use crate::error::StoreError;
use crate::store::{DynStore, HoldStatus, Renewal, undecided};
use crate::sync::{Mutex, MutexGuard};
use crate::telemetry::{self, Events, Seldom};

mod live;
mod moment;
mod new_holds;
mod schedule;
mod task;

pub(crate) use live::{LiveHold, Phase, valid_for};
pub(crate) use moment::Moment;
use schedule::{Batch, RenewalSchedule, Round};

/// After how many losses the thread is given to others.
const LOSSES: usize = 256;

pub(crate) type LossCallback = Box<dyn Fn(&Arc<LiveHold>) + Send + Sync>;

/// Renews every live hold of a client, and finds those that are lost.
pub(crate) struct Watchdog {
    store: Arc<dyn DynStore>,
    /// The runtime of the task, if the client sets one. It overrides the store's.
    runtime: Option<Handle>,
    /// Supplies another runtime when that of the task ends.
    tasks: Arc<CleanupTasks>,
    events: Events,
    /// Called for every hold that is lost, outside the mutex.
    on_lost: LossCallback,
    /// The log of renewals that fail.
    failures: Seldom,
    /// The log of holds that are lost.
    losses: Seldom,
    state: Mutex<WatchdogState>,
    /// Notified when the task must look at the schedule.
    work: Notify,
}

/// Protected by one mutex. Only the mutex of a [`LiveHold`] is taken under it, and it is taken under none of the queue.
///
/// The first hold starts the task. It returns after the last hold of a retired watchdog; if it is dropped before, with its
/// runtime, [`Watchdog::ended`] or the next hold starts another one. It is started outside the mutex. Between calls:
///
/// * At most one task runs: `task` is alive from before its start until it returns or is dropped.
/// * A hold is in `schedule` from its grant until its release begins, it is lost, or its deadline has passed.
/// * A task that runs wakes no later than the next look at any hold.
#[derive(Default)]
struct WatchdogState {
    schedule: RenewalSchedule,
    /// Dead while no task runs.
    task: Weak<()>,
    /// The first renewal that failed, until an answer after which no partition fails.
    outage: Option<Instant>,
    retired: bool,
}

impl Watchdog {
    pub(crate) fn new(
        store: Arc<dyn DynStore>,
        runtime: Option<Handle>,
        tasks: Arc<CleanupTasks>,
        events: Events,
        on_lost: LossCallback,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            runtime,
            tasks,
            events,
            on_lost,
            failures: Seldom::default(),
            losses: Seldom::every(Duration::from_secs(1)),
            state: Mutex::default(),
            work: Notify::new(),
        })
    }

    /// Begins to renew `live`.
    pub(crate) fn begin(self: &Arc<Self>, live: &Arc<LiveHold>) {
        let missing = {
            let mut state = self.state();
            let missing = self.missing_task(&mut state);
            if state.schedule.enter(live) {
                self.work.notify_one();
            }
            missing
        };
        // Outside the mutex: a runtime that has ended drops the task at once, and the last handle of a runtime drops what
        // the program has given to it, which may be a guard of this client.
        if let Some((task, runtime)) = missing {
            task.start(&runtime);
        }
    }

    /// Stops the renewal of `live` before its release. Returns `false` if it is lost.
    pub(crate) fn end(&self, live: &Arc<LiveHold>) -> bool {
        let is_held = {
            let mut state = self.state();
            state.schedule.remove(live);
            live.begin_release()
        };
        if !is_held {
            self.lose(live, live.why_over());
        }
        is_held
    }

    /// The limit of `live` was extended: a hold whose renewals had ended may be renewed again.
    pub(crate) fn extended(&self, live: &Arc<LiveHold>, look: Moment) {
        if self.state().schedule.look_earlier(live, look) {
            self.work.notify_one();
        }
    }

    /// Marks `live` as lost. Returns `false` if its release has begun, or it has ended.
    pub(crate) fn lose(&self, live: &Arc<LiveHold>, reason: &'static str) -> bool {
        self.state().schedule.remove(live);
        let is_lost = live.lose();
        if is_lost {
            self.report_loss(live, reason);
            (self.on_lost)(live);
        }
        is_lost
    }

    /// Reports a loss.
    pub(crate) fn report_loss(&self, live: &LiveHold, reason: &'static str) {
        telemetry::lost(&self.events, &self.losses, &live.route, &live.hold, reason);
    }

    /// Every live hold.
    pub(crate) fn all(&self) -> Vec<Arc<LiveHold>> {
        self.state().schedule.all()
    }

    /// Ends the task, after the last hold.
    pub(crate) fn retire(&self) {
        self.state().retired = true;
        self.work.notify_one();
    }

    async fn run(self: Arc<Self>) {
        let mut running = FuturesUnordered::<Job>::new();
        while let Some(alarm) = self.look(&mut running).await {
            tokio::select! {
                // A fixed order, so that a simulation replays. Each turn checks every branch, so none starves.
                biased;
                Some(()) = running.next() => {}
                () = self.work.notified() => {}
                () = tokio::time::sleep_until(alarm) => {}
            }
        }
    }

    /// Begins all renewals that are due. Returns when to look again; `None` if there will be no more.
    async fn look(self: &Arc<Self>, running: &mut FuturesUnordered<Job>) -> Option<Instant> {
        let mut round = Round::default();
        let mut lost = 0;
        while !self.compose(&mut round, &mut lost) {
            // After a pause of the process, all holds may be over: the thread also reads the answers about others.
            if lost >= LOSSES {
                lost = 0;
                tokio::task::yield_now().await;
            }
        }
        let probes = round.probes.into_iter().map(|probe| vec![probe]);
        for batches in round.batches.into_values().chain(probes) {
            running.push(Box::pin(self.clone().renew_one_by_one(batches)));
        }
        let mut state = self.state();
        if state.retired && running.is_empty() {
            state.task = Weak::new();
            return None;
        }
        Some(state.schedule.set_alarm(Instant::now()))
    }

    /// Composes a part of a round. Returns whether the round is complete. The mutex is not held between two parts.
    fn compose(self: &Arc<Self>, round: &mut Round, lost: &mut usize) -> bool {
        let partition = |live: &LiveHold| self.store.partition_of(&live.hold.key);
        let now = Instant::now();
        let is_complete = self.state().schedule.due(now, partition, round);
        *lost += round.lost.len();
        for live in round.lost.drain(..) {
            self.lose(&live, live.why_over());
        }
        is_complete
    }

    /// Asks for the batches of one partition, each after the answer to the one before, so that the server serves others between
    /// them. No answer is waited for long: all are sent within a hundredth of a lease, and leases that are cut at a limit are
    /// sent at once.
    async fn renew_one_by_one(self: Arc<Self>, batches: Vec<Arc<Batch>>) {
        if let [only] = &batches[..] {
            return self.renew(only.clone()).await;
        }
        let (cut, full): (Vec<_>, Vec<_>) = batches.into_iter().partition(|batch| batch.is_cut());
        let leases = full.iter().flat_map(|batch| &batch.holds);
        let shortest = leases.map(|(_, lease)| *lease).min().unwrap_or_default();
        let pause = shortest / 100 / u32::try_from(full.len().max(1)).unwrap_or(u32::MAX);
        let cut = cut.into_iter().map(|batch| self.renew(batch));
        let mut running: FuturesUnordered<_> = cut.collect();
        for batch in full {
            running.push(self.renew(batch));
            tokio::select! {
                biased; // without chance, a simulation replays
                _ = running.next() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        while running.next().await.is_some() {}
    }

    async fn renew(&self, batch: Arc<Batch>) {
        let renewals = batch
            .holds
            .iter()
            .map(|(live, lease)| Renewal::new(live.hold.clone(), *lease));
        let sent = Instant::now();
        let answer = self.store.clone().renew(renewals.collect()).await;
        // An answer that decides about no hold counts as no answer.
        let answer = answer.and_then(|statuses| {
            let decides = statuses.iter().any(|status| *status != HoldStatus::Unknown);
            decides.then_some(statuses).ok_or_else(undecided)
        });
        match answer {
            Ok(statuses) => self.answered(&batch, sent, &statuses),
            Err(error) => self.not_answered(&batch, sent, &error),
        }
    }

    fn answered(&self, batch: &Batch, sent: Instant, statuses: &[HoldStatus]) {
        // Outside the mutex, because recorders are code outside this crate.
        telemetry::renewals_ended("answered", sent);
        for ((live, _), status) in batch.holds.iter().zip(statuses) {
            let (route, mode) = (&live.route, live.hold.mode);
            match status {
                HoldStatus::Held => telemetry::renewed(route, mode, || live.overdue()),
                HoldStatus::Unknown => telemetry::not_renewed(route, mode, "failed"),
                HoldStatus::Gone => {}
            }
        }
        let now = Instant::now();
        let (lost, outage) = {
            let mut state = self.state();
            let lost = state.schedule.answered(batch, sent, now, statuses);
            if state.schedule.is_recovering() {
                self.work.notify_one();
            }
            let is_over = !state.schedule.is_failing();
            (lost, state.outage.take_if(|_| is_over))
        };
        if let Some(began) = outage {
            tracing::info!(outage = ?(now - began), "renewals are answered again");
        }
        for live in lost {
            // One whose release has begun since is not lost.
            if self.lose(live, "the store does not carry it any more") {
                telemetry::not_renewed(&live.route, live.hold.mode, "lost");
            }
        }
        let unknown = statuses.iter();
        let unknown = unknown
            .filter(|status| **status == HoldStatus::Unknown)
            .count();
        if unknown > 0 {
            self.warn(&undecided(), unknown, false);
        }
    }

    fn not_answered(&self, batch: &Batch, sent: Instant, error: &StoreError) {
        telemetry::renewals_ended("failed", sent);
        for (live, _) in &batch.holds {
            telemetry::not_renewed(&live.route, live.hold.mode, "failed");
        }
        let now = Instant::now();
        let (holds, is_new) = {
            let mut state = self.state();
            let is_new = !state.schedule.is_failing();
            state.schedule.not_answered(batch, sent, now);
            if !state.schedule.is_failing() {
                return;
            }
            // The partition is probed soon, also while another batch of its round has no answer.
            self.work.notify_one();
            if is_new {
                state.outage = Some(now);
            }
            (state.schedule.failing(), is_new)
        };
        self.warn(error, holds, is_new);
    }

    /// Logs the begin of an outage, and what else fails once a minute.
    fn warn(&self, error: &StoreError, holds: usize, is_new: bool) {
        if let Some(left_out) = self.failures.due_if(is_new) {
            let error = error as &dyn Error;
            tracing::warn!(error, holds, left_out, "could not renew");
        }
    }

    fn state(&self) -> MutexGuard<'_, WatchdogState> {
        self.state.lock()
    }
}

#[cfg(test)]
mod tests;
