//! The keeper: the one background task of a client.
//!
//! It renews holds in batches at a third of their lease, says when one is lost, answers owner checks, and drives to its
//! end whatever a dropped future or guard has left behind. It has no timer and no task per hold.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::runtime;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::error::{LockError, StoreError, StoreErrorKind};
use crate::lock::{Hold, Lease};
use crate::store::{DynStore, Record, Renewal, Standing};
use crate::telemetry;

mod driven;
mod live;
mod outage;

pub(crate) use driven::{Driven, Job};
pub(crate) use live::{LiveHold, Phase};
use outage::Outage;

/// How many holds one question names: few enough to keep a single-threaded server responsive.
const BATCH: usize = 100;

/// The pause after a renewal failed, before the next try.
const RENEWAL_RETRY: Duration = Duration::from_millis(100);

/// The pause after a release or a check failed, before the next try; it doubles.
const FIRST_BACKOFF: Duration = Duration::from_millis(20);

/// How long an owner check is tried.
const CHECK_BUDGET: Duration = Duration::from_secs(1);

/// The longest pause between two tries to release.
const RELEASE_BACKOFF: Duration = Duration::from_secs(1);

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
    /// Every live hold, by when it is next looked at.
    calendar: BTreeMap<Place, Arc<LiveHold>>,
    /// What dropped futures and guards have left.
    jobs: Vec<Job>,
    /// How many of them the task is driving.
    driving: usize,
    /// By the part of the store that they are for.
    checks: BTreeMap<u16, Vec<Check>>,
    /// The parts that are being asked; checks that come meanwhile share the next question.
    checking: BTreeSet<u16>,
    /// When the task wakes by itself.
    alarm: Option<Instant>,
    task: Option<Task>,
    /// Another runtime that had something to keep lately: it takes over when the task's own ends.
    spare: Option<runtime::Handle>,
    outage: Outage,
    orphaned: bool,
}

/// The task, and where it runs.
struct Task {
    handle: JoinHandle<()>,
    home: runtime::Id,
}

/// Held by the task while it runs. Dropped with it, when its runtime ends, it has another one go on.
struct Running(Arc<Shared>);

/// Where a hold stands in the calendar. The number keeps holds of one instant apart.
pub(crate) type Place = (Instant, u64);

/// Holds to renew, and for how long.
type Batch = Vec<(Arc<LiveHold>, Duration)>;

type OnLost = Box<dyn Fn(&Arc<LiveHold>) + Send + Sync>;

struct Check {
    live: Arc<LiveHold>,
    answer: Asker,
}

type Asker = oneshot::Sender<Result<Standing, StoreError>>;

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
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let place = (first_look(live), NUMBER.fetch_add(1, Ordering::Relaxed));
        let shared = &self.handle.shared;
        let here = runtime::Handle::try_current().ok();
        let mut state = shared.state();
        state.put(place, live);
        shared.ensure_running(&mut state);
        let replaced = state.note(here);
        shared.ring(&state, place.0);
        drop(state);
        // The last handle of a runtime that has ended may take more along: not under the mutex.
        drop(replaced);
    }

    /// Ends renewal for a release that is about to be sent; false if the hold is lost already.
    pub(crate) fn begin_release(&self, live: &LiveHold) -> bool {
        let mut state = self.handle.shared.state();
        if let Some(place) = live.move_to(None) {
            state.calendar.remove(&place);
        }
        live.begin_release()
    }

    /// Releases in the store, trying again until it answers or the lease is over anyway.
    ///
    /// To be called after [`Keeper::begin_release`]. A `record` is stored in the same step. When the store was asked once,
    /// whatever it answered, `asked` is told how many have heard of the release.
    ///
    /// # Errors
    ///
    /// `Lost` if the store did not carry the hold any more; `Unavailable` if nobody can say, at once if the store refused:
    /// what it refused is tried on in the background.
    pub(crate) async fn release(
        self,
        live: Arc<LiveHold>,
        record: Option<Record>,
        asked: impl FnOnce(usize) + Send,
    ) -> Result<(), LockError> {
        // A release that is dropped has been dropped with the keeper's runtime: nobody goes on with it, and nobody shall wait
        // for its end.
        let cut_off = CutOff(live.clone());
        let result = release(self.store(), &live, record, asked).await;
        if was_refused(&result) {
            self.adopt(Box::pin(insist(self.store(), live.clone())));
        }
        if matches!(result, Err(LockError::Lost)) && !live.has_ended() {
            telemetry::lost(&live, "the store did not carry it at its release");
        }
        live.finish(match result {
            Ok(()) => Phase::Released,
            Err(_) => Phase::Lost,
        });
        drop(cut_off);
        result
    }

    /// Asks the store whether it carries the hold now. Everybody who asks at about the same time shares one question.
    pub(crate) async fn check(&self, live: &Arc<LiveHold>) -> Result<(), LockError> {
        match self.standing(live).await {
            Ok(Standing::Held) => Ok(()),
            Ok(Standing::Gone) => match live.phase() {
                // It went on after us and its release overtook the question: that release speaks for us too.
                Phase::Released => Ok(()),
                Phase::Releasing if live.ended().await == Phase::Released => Ok(()),
                _ => {
                    let shared = &self.handle.shared;
                    shared.lose(live, "the store does not carry it any more");
                    Err(LockError::Lost)
                }
            },
            Err(error) => Err(error.into()),
        }
    }

    async fn standing(&self, live: &Arc<LiveHold>) -> Result<Standing, StoreError> {
        let shared = &self.handle.shared;
        let part = shared.store.part(&live.hold.key);
        loop {
            let (answer, answered) = oneshot::channel();
            {
                let mut state = shared.state();
                let checks = state.checks.entry(part).or_default();
                checks.push(Check {
                    live: live.clone(),
                    answer,
                });
                shared.ensure_running(&mut state);
            }
            shared.work.notify_one();
            // The question is lost only with the runtime that it was asked on: it is asked again on this one.
            if let Ok(standing) = answered.await {
                return standing;
            }
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
        let all: Vec<_> = shared.state().calendar.values().cloned().collect();
        for live in all {
            shared.lose(&live, "the client was shut down");
            let store = self.store();
            self.adopt(Box::pin(async move {
                let _ = release(store, &live, None, |_| ()).await;
            }));
        }
    }

    /// Waits until every adopted job is done.
    pub(crate) async fn drained(&self) {
        let shared = &self.handle.shared;
        loop {
            let drained = shared.drained.notified();
            tokio::pin!(drained);
            drained.as_mut().enable();
            {
                let mut state = shared.state();
                // What was adopted outside a runtime, or left by one that has ended, is still to be begun.
                shared.ensure_running(&mut state);
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
        let mut task = state.task.iter();
        if task.any(|task| !task.handle.is_finished()) {
            return;
        }
        if let Ok(runtime) = runtime::Handle::try_current() {
            self.start(state, &runtime);
        }
    }

    fn start(self: &Arc<Self>, state: &mut State, runtime: &runtime::Handle) {
        state.driving = 0;
        state.checking.clear();
        state.alarm = None;
        state.task = Some(Task {
            handle: runtime.spawn(self.clone().run()),
            home: runtime.id(),
        });
    }

    /// Wakes the task if it would sleep past `instant`.
    fn ring(&self, state: &State, instant: Instant) {
        if state.alarm.is_none_or(|alarm| instant < alarm) {
            self.work.notify_one();
        }
    }

    async fn run(self: Arc<Self>) {
        // Made first, so that it is dropped last: after the jobs, which may leave others behind.
        let _here = Running(self.clone());
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

    fn lose(&self, live: &Arc<LiveHold>, reason: &'static str) {
        {
            let mut state = self.state();
            if let Some(place) = live.move_to(None) {
                state.calendar.remove(&place);
            }
        }
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
                // One that was begun on a runtime that has ended meanwhile panics: its timers are gone. The others go on.
                if AssertUnwindSafe(job).catch_unwind().await.is_err() {
                    tracing::warn!(
                        "what was left in the background has ended in a panic; leases will"
                    );
                }
                let mut state = shared.state();
                state.driving -= 1;
                if state.driving == 0 {
                    shared.drained.notify_waiters();
                }
            }));
        }
        for (part, checks) in state.checks_to_ask() {
            running.push(Box::pin(self.clone().answer(part, checks)));
        }
        let mut lost = Vec::new();
        let part = |live: &LiveHold| self.store.part(&live.hold.key);
        for batch in state.due(Instant::now(), part, &mut lost) {
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
        let now = Instant::now();
        let first = state
            .calendar
            .first_key_value()
            .map_or_else(|| now + Duration::from_secs(3600), |(place, _)| place.0);
        // An alarm is not put off when the hold that it was for has gone: the next hold would have to put it forward
        // again, and wake the task for that, which costs more than waking once for nothing.
        let alarm = match state.alarm {
            Some(alarm) if alarm > now => alarm.min(first),
            _ => first,
        };
        state.alarm = Some(alarm);
        Some(alarm)
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
            Err(error) => return self.not_renewed(batch, &error),
        };
        // Outside the mutex: recorders are foreign code.
        for ((live, _), standing) in batch.iter().zip(&standings) {
            match standing {
                Standing::Held => telemetry::renewed(live),
                Standing::Gone => telemetry::not_renewed(live, "lost"),
            }
        }
        let mut lost = Vec::new();
        let news = {
            let mut state = self.state();
            for ((live, lease), standing) in batch.iter().zip(standings) {
                match standing {
                    Standing::Held => {
                        live.renewed(sent, *lease);
                        state.postpone(live, sent + live.lease.duration() / 3);
                    }
                    Standing::Gone => lost.push(live),
                }
            }
            let answered = batch.iter().map(|(live, _)| live);
            state.outage.answered(answered, Instant::now())
        };
        if let Some(news) = news {
            news.say(None);
        }
        for live in lost {
            self.lose(live, "the store does not carry it any more");
        }
    }

    /// Nobody knows: every deadline stays where it is, and renewal is tried again soon.
    fn not_renewed(&self, batch: Batch, error: &StoreError) {
        for (live, _) in &batch {
            telemetry::not_renewed(live, "failed");
        }
        let now = Instant::now();
        let news = {
            let mut state = self.state();
            for (live, lease) in &batch {
                state.postpone(live, now + RENEWAL_RETRY.min(*lease / 10));
            }
            let failed = batch.iter().map(|(live, _)| live);
            state.outage.failed(failed, now)
        };
        if let Some(news) = news {
            news.say(Some(error));
        }
    }

    /// Asks which holds there are; a question that changes nothing is asked again when it fails.
    async fn ask_whether(&self, holds: Vec<Hold>) -> Result<Vec<Standing>, StoreError> {
        let over = Instant::now() + CHECK_BUDGET;
        let mut backoff = FIRST_BACKOFF;
        loop {
            let error = match self.store.clone().check(holds.clone()).await {
                Ok(standings) => return Ok(standings),
                Err(error) => error,
            };
            let is_final = matches!(
                error.kind(),
                StoreErrorKind::Refused | StoreErrorKind::Conflict
            );
            if is_final || Instant::now() + backoff >= over {
                return Err(error);
            }
            tokio::time::sleep(backoff).await;
            backoff *= 2;
        }
    }

    async fn answer(self: Arc<Self>, part: u16, checks: Vec<Check>) {
        for batch in in_batches(by_hold(checks)) {
            let holds = batch.iter().map(|(live, _)| live.hold.clone()).collect();
            let answers = self.ask_whether(holds).await;
            for (index, (_, askers)) in batch.into_iter().enumerate() {
                let answer = answers.as_ref().map(|standings| standings[index]);
                for asker in askers {
                    // Whoever asked may have gone.
                    let _ = asker.send(answer.map_err(Clone::clone));
                }
            }
        }
        self.state().checking.remove(&part);
        self.work.notify_one();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Self(shared) = self;
        let abandoned = {
            let mut state = shared.state();
            // It has ended by itself: there was nothing left to do.
            if state.task.is_none() {
                return;
            }
            state.task = None;
            state.driving = 0;
            // After a panic, which only foreign code has, it goes on here.
            let spare = state.spare.take();
            if let Some(runtime) = spare.or_else(|| runtime::Handle::try_current().ok()) {
                shared.start(&mut state, &runtime);
            }
            std::mem::take(&mut state.checks)
        };
        shared.drained.notify_waiters();
        // Whoever asked asks again, on a runtime that lives.
        drop(abandoned);
    }
}

/// A release under way. Dropped before the end, it says that nobody will know.
struct CutOff(Arc<LiveHold>);

impl Drop for CutOff {
    fn drop(&mut self) {
        self.0.finish(Phase::Lost);
    }
}

impl State {
    /// Remembers the runtime of somebody who has something to keep, if it is not the task's; returns the one remembered
    /// before.
    fn note(&mut self, here: Option<runtime::Handle>) -> Option<runtime::Handle> {
        let here = here?;
        let mut task = self.task.iter();
        match task.all(|task| task.home != here.id()) {
            true => self.spare.replace(here),
            false => None,
        }
    }

    fn put(&mut self, place: Place, live: &Arc<LiveHold>) {
        if live.phase() == Phase::Held {
            live.move_to(Some(place));
            self.calendar.insert(place, live.clone());
        }
    }

    /// Moves a hold that is still in the calendar.
    fn postpone(&mut self, live: &Arc<LiveHold>, to: Instant) {
        if let Some(place) = live.move_to(None) {
            self.calendar.remove(&place);
            self.put((to.min(live.deadline()), place.1), live);
        }
    }

    /// The checks for each part of the store that is not being asked already.
    fn checks_to_ask(&mut self) -> Vec<(u16, Vec<Check>)> {
        let idle = |part: &u16| !self.checking.contains(part);
        let parts: Vec<u16> = self.checks.keys().copied().filter(idle).collect();
        let checks = parts
            .into_iter()
            .filter_map(|part| self.checks.remove_entry(&part));
        let checks: Vec<_> = checks.collect();
        self.checking.extend(checks.iter().map(|(part, _)| *part));
        checks
    }

    /// Looks at every hold whose time has come: sorts out those past their deadline, returns those to renew, each batch
    /// from one part of the store.
    fn due(
        &mut self,
        now: Instant,
        part: impl Fn(&LiveHold) -> u16,
        lost: &mut Vec<Arc<LiveHold>>,
    ) -> Vec<Batch> {
        let mut renewals = BTreeMap::<u16, Vec<_>>::new();
        while let Some((&place, live)) = self.calendar.first_key_value() {
            let live = live.clone();
            let deadline = live.deadline();
            // A renewal a little early is as good, and makes larger batches. It begins none: a renewal that failed, and is to
            // be tried again in a moment, would be tried without a pause.
            let early = if place.0 < deadline && !renewals.is_empty() {
                live.lease.duration() / 30
            } else {
                Duration::ZERO
            };
            if place.0 > now + early {
                break;
            }
            self.calendar.remove(&place);
            live.move_to(None);
            if now >= deadline {
                lost.push(live);
                continue;
            }
            // Until an answer moves it, the next look is at the deadline.
            self.put((deadline, place.1), &live);
            if let Lease::Renewed(_) = live.lease
                && let Some(lease) = live.next_lease(now)
            {
                let renewals = renewals.entry(part(&live)).or_default();
                renewals.push((live, lease));
            }
        }
        renewals.into_values().flat_map(in_batches).collect()
    }
}

/// When a new hold is first renewed: at any time within a third of its lease, short holds excepted, so that holds that were
/// granted together are not renewed together ever after.
fn first_look(live: &LiveHold) -> Instant {
    match live.lease {
        Lease::Renewed(lease) => {
            let third = (lease / 3).mul_f64(0.25 + 0.75 * fastrand::f64());
            (Instant::now() + third).min(live.deadline())
        }
        Lease::Fixed(_) => live.deadline(),
    }
}

/// Every hold that somebody asks about, once, with all who ask: a hold that is passed on quickly is asked about by each who
/// had it.
///
/// They stay in the order in which they were first asked about: an order of addresses would be another in each run.
fn by_hold(checks: Vec<Check>) -> Vec<(Arc<LiveHold>, Vec<Asker>)> {
    let mut places = HashMap::with_capacity(checks.len());
    let mut holds: Vec<(Arc<LiveHold>, Vec<Asker>)> = Vec::new();
    for Check { live, answer } in checks {
        let place = *places.entry(Arc::as_ptr(&live)).or_insert(holds.len());
        match holds.get_mut(place) {
            Some((_, askers)) => askers.push(answer),
            None => holds.push((live, vec![answer])),
        }
    }
    holds
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

async fn release(
    store: Arc<dyn DynStore>,
    live: &LiveHold,
    record: Option<Record>,
    asked: impl FnOnce(usize) + Send,
) -> Result<(), LockError> {
    let mut asked = Some(asked);
    let over = Instant::now() + live.lease.duration();
    let mut backoff = FIRST_BACKOFF;
    let mut unanswered = None;
    loop {
        let (store, hold) = (store.clone(), live.hold.clone());
        let released = match &record {
            None => store.release(hold).await,
            Some(record) => store.release_recording(hold, record.clone()).await,
        };
        if let Some(asked) = asked.take() {
            asked(released.as_ref().map_or(0, |released| released.listeners));
        }
        let error = match released.map(|released| released.standing) {
            Ok(Standing::Held) => return Ok(()),
            // An earlier try may have been the one that released it: nobody can say.
            Ok(Standing::Gone) => return Err(unanswered.map_or(LockError::Lost, LockError::from)),
            Err(error) => error,
        };
        match error.kind() {
            StoreErrorKind::Refused | StoreErrorKind::Conflict => return Err(error.into()),
            // It is released, and asking again would not find it.
            StoreErrorKind::Unacknowledged => return Err(error.into()),
            _ if Instant::now() >= over => return Err(error.into()),
            StoreErrorKind::Unanswered => unanswered = Some(error),
            StoreErrorKind::Unreachable | StoreErrorKind::Transient => {}
        }
        tokio::time::sleep(backoff).await;
        backoff = (backoff * 2).min(RELEASE_BACKOFF);
    }
}

/// Goes on after a refusal, which may be over before the lease is: rights are given back, as are passwords.
async fn insist(store: Arc<dyn DynStore>, live: Arc<LiveHold>) {
    let over = Instant::now() + live.lease.duration();
    while Instant::now() < over {
        tokio::time::sleep(RELEASE_BACKOFF).await;
        if !was_refused(&release(store.clone(), &live, None, |_| ()).await) {
            return;
        }
    }
}

fn was_refused(released: &Result<(), LockError>) -> bool {
    matches!(released, Err(LockError::Unavailable(error)) if error.kind() == StoreErrorKind::Refused)
}
