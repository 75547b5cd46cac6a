//! The end of holds in the store: released, and again until it answers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::{Core, ShareRelease};
use crate::backoff::Backoff;
use crate::error::{LockError, StoreError, StoreErrorKind, worst};
use crate::hold::{End, Held};
use crate::store::{BATCH, Asked, HoldStatus, Record, Release, Released, undecided};

/// The pause between two tries of a release that the store refuses.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// A hold without shares, whose release has begun: the duty to release it.
pub(super) struct Ending {
    core: Arc<Core>,
    held: Arc<Held>,
    /// The table waits for its end.
    awaited: bool,
    /// Whether it was held when its last share ended.
    is_held: bool,
    /// The end of its minimum, if the store keeps it until then.
    kept_until: Option<Instant>,
    began: Instant,
    is_over: bool,
    /// A shutdown waits for it.
    _counted: TaskTrackerToken,
}

impl Ending {
    pub(super) fn new(core: Arc<Core>, held: Arc<Held>, awaited: bool, now: Instant) -> Self {
        let is_held = held.begin_release(now);
        if !is_held && held.lose() {
            core.report_loss(&held, held.why_over());
        }
        let kept_until = held.kept_until(now);
        Self {
            _counted: core.spawner.tracker.token(),
            core,
            held,
            awaited,
            is_held,
            kept_until,
            began: now,
            is_over: false,
        }
    }

    /// Releases it. A store that answers at once has answered when this returns.
    pub(super) fn begin(mut self, record: Option<Record>) -> ShareRelease {
        if self.kept_until.is_some() && record.is_none() {
            return self.leave();
        }
        // A lost hold is released as well, because the store may still carry it.
        let is_held = self.is_held;
        let record = record.filter(|_| is_held);
        let core = self.core.clone();
        let release = Release::new(self.held.hold.clone()).record(record.clone());
        match core.store.release_one(release) {
            Asked::Now(released) => {
                self.first_answer(&released);
                let result = Tries::default().decided(&self.held, released);
                let result = result.unwrap_or_else(|| Err(undecided().into()));
                let began = self.began;
                ShareRelease::done(self.ended(began, result)).lost_if(!is_held)
            }
            Asked::Later(answer) => {
                let work = self.released(Some(answer), record);
                ShareRelease::kept(core, Box::pin(work)).lost_if(!is_held)
            }
        }
    }

    /// The same where no caller waits.
    pub(super) fn in_background(self) {
        let core = self.core.clone();
        if self.kept_until.is_some() || core.store.answers_at_once() {
            drop(self.begin(None));
            return;
        }
        core.spawner.run(async move {
            let place = self.core.place(self.core.store.partition_of(&self.held.hold.key));
            let place = place.acquire().await;
            drop(self.released(None, None).await);
            drop(place);
        });
    }

    /// Leaves it in the store until its minimum is over, and asks whether the store carries it.
    fn leave(mut self) -> ShareRelease {
        let until = self.kept_until.expect("it has a minimum");
        self.freed(HoldStatus::Held.into());
        self.is_over = true;
        if !self.is_held {
            return ShareRelease::done(Err(LockError::Lost));
        }
        let (core, held, now) = (self.core.clone(), self.held.clone(), self.began);
        core.table.shard_of(&held.hold.key).wheel.place(&held, until);
        core.agenda.visit(until);
        core.check(&held);
        match held.verdict(now) {
            Some(verdict) => ShareRelease::done(verdict),
            None => ShareRelease::waits(Box::pin(Core::confirmed(held, now))),
        }
    }

    /// Asks until the release is decided, with pauses between. `first`: the answer to the first question, which was asked.
    async fn released(
        mut self,
        first: Option<crate::store::Answer<Released>>,
        record: Option<Record>,
    ) -> Result<(), LockError> {
        let mut tries = Tries::default();
        let mut backoff = Backoff::STORE;
        let mut answer = first;
        loop {
            let sent = if answer.is_some() { self.began } else { Instant::now() };
            let released = match answer.take() {
                Some(answer) => answer.await,
                None => {
                    let release = Release::new(self.held.hold.clone()).record(record.clone());
                    self.core.store.release_one(release).answer().await
                }
            };
            self.first_answer(&released);
            if let Some(result) = tries.decided(&self.held, released) {
                return self.ended(sent, result);
            }
            backoff.pause().await;
        }
    }

    /// The store has answered for the first time, which may be an error: what waits for that goes on.
    fn first_answer(&mut self, released: &Result<Released, StoreError>) {
        let released = released.as_ref().copied();
        self.freed(released.unwrap_or_else(|_| HoldStatus::Unknown.into()));
    }

    fn freed(&mut self, released: Released) {
        if std::mem::take(&mut self.awaited) {
            let out = self.core.table.released(&self.held, released, Instant::now());
            self.core.run(out);
        }
    }

    /// The release, sent at `sent`, has this result.
    fn ended(&mut self, sent: Instant, result: Result<(), LockError>) -> Result<(), LockError> {
        self.is_over = true;
        if was_refused(&result) {
            let (core, held) = (self.core.clone(), self.held.clone());
            self.core.spawner.run(retry_refused(core, held));
        }
        finish(&self.core, &self.held, sent, &result);
        result
    }
}

/// A release that is dropped before its end, with its runtime, ends with an unknown result, so that nobody waits for it.
impl Drop for Ending {
    fn drop(&mut self) {
        if !self.is_over {
            self.freed(HoldStatus::Unknown.into());
            self.held.finish(self.began, End::Unknown(undecided()));
        }
    }
}

fn finish(core: &Core, held: &Held, sent: Instant, result: &Result<(), LockError>) {
    let end = match result {
        Ok(()) => End::Released,
        Err(LockError::Lost) => {
            if !held.has_ended() {
                core.report_loss(held, "the store did not carry it at its release");
            }
            End::Lost
        }
        Err(LockError::Unavailable(error) | LockError::Conflict(error)) => {
            End::Unknown(error.clone())
        }
        Err(_) => End::Unknown(undecided()),
    };
    held.finish(sent, end);
}

/// Ends several holds together, those of one partition in few questions. Returns whether the store carried all of them until then.
pub(super) fn end_all(
    core: Arc<Core>,
    ends: Vec<Ending>,
    background: bool,
) -> impl Future<Output = Result<(), LockError>> + Send + 'static {
    let (kept, ends): (Vec<_>, Vec<_>) = ends.into_iter().partition(|end| end.kept_until.is_some());
    let kept: Vec<_> = kept.into_iter().map(Ending::leave).collect();
    let partitions = core.store.by_partition(ends, |end| &end.held.hold.key);
    async move {
        let releases = partitions.into_iter().map(|(partition, mut ends)| {
            let core = core.clone();
            async move {
                let place = core.place(partition);
                let _place = match background {
                    true => place.acquire().await.ok(),
                    false => None,
                };
                let holds = ends.iter().map(|end| end.held.clone()).collect();
                release_together(&core, holds, &mut ends).await
            }
        });
        let (released, left) = tokio::join!(join_all(releases), join_all(kept));
        worst(released.into_iter().flatten().chain(left))
    }
}

/// Releases many holds of one partition, up to [`BATCH`] in a question. Each end is told as soon as it is known.
pub(super) async fn release_together(
    core: &Arc<Core>,
    holds: Vec<Arc<Held>>,
    ends: &mut [Ending],
) -> Vec<Result<(), LockError>> {
    let mut tries: Vec<_> = holds.iter().map(|_| Tries::default()).collect();
    let mut results: Vec<_> = holds.iter().map(|_| None).collect();
    let mut open: Vec<_> = (0..holds.len()).collect();
    let mut backoff = Backoff::STORE;
    loop {
        for batch in open.chunks(BATCH) {
            let releases = batch.iter();
            let releases = releases.map(|place| Release::new(holds[*place].hold.clone()));
            let sent = Instant::now();
            let answer = core.store.release(releases.collect()).answer().await;
            for (index, &place) in batch.iter().enumerate() {
                let released = answer.as_ref().map(|released| released[index]);
                let released = released.map_err(Clone::clone);
                if let Some(end) = ends.get_mut(place) {
                    end.first_answer(&released);
                }
                let result = tries[place].decided(&holds[place], released);
                results[place] = match (result, ends.get_mut(place)) {
                    (Some(result), Some(end)) => Some(end.ended(sent, result)),
                    (result, _) => result,
                };
            }
        }
        open.retain(|place| results[*place].is_none());
        if open.is_empty() {
            return results.into_iter().flatten().collect();
        }
        backoff.pause().await;
    }
}

/// The release of one hold, which may be repeated.
#[derive(Default)]
struct Tries {
    /// When its lease is over, by the answer to the first try. `None` before that.
    over: Option<Instant>,
    /// The store may have released it without an answer.
    unanswered: Option<StoreError>,
}

impl Tries {
    /// The result from the store's answer; `None` if the release must be repeated.
    fn decided(
        &mut self,
        held: &Held,
        released: Result<Released, StoreError>,
    ) -> Option<Result<(), LockError>> {
        let error = match released.map(|released| released.status) {
            Ok(HoldStatus::Held) => return Some(Ok(())),
            Ok(HoldStatus::Gone) => {
                // An earlier attempt may have released it.
                let why = self.unanswered.take();
                return Some(Err(why.map_or(LockError::Lost, LockError::from)));
            }
            Ok(HoldStatus::Unknown) => undecided(),
            Err(error) => error,
        };
        let now = Instant::now();
        let over = *self.over.get_or_insert_with(|| now + held.longest_rest(now));
        match error.kind() {
            // After `Unacknowledged` the hold is released, and a repeat would not find it.
            StoreErrorKind::Refused
            | StoreErrorKind::Conflict
            | StoreErrorKind::Unacknowledged => Some(Err(error.into())),
            _ if now >= over => Some(Err(error.into())),
            StoreErrorKind::Unanswered => {
                self.unanswered = Some(error);
                None
            }
            StoreErrorKind::Unreachable | StoreErrorKind::Transient => None,
        }
    }
}

/// Repeats a refused release until the lease is over, because the cause may end: rights and passwords may be restored.
async fn retry_refused(core: Arc<Core>, held: Arc<Held>) {
    let over = Instant::now() + held.longest_rest(Instant::now());
    while Instant::now() < over {
        tokio::time::sleep(REFUSED_PAUSE).await;
        let release = Release::new(held.hold.clone());
        let released = core.store.release_one(release).answer().await;
        let is_refused = |error: &StoreError| error.kind() == StoreErrorKind::Refused;
        let is_undecided = |error: &StoreError| is_refused(error) || !error.is_final();
        if !released.is_err_and(|error| is_undecided(&error)) {
            return;
        }
    }
}

fn was_refused(released: &Result<(), LockError>) -> bool {
    matches!(released, Err(LockError::Unavailable(error)) if error.kind() == StoreErrorKind::Refused)
}
