//! The end of holds in the store: released, and again until it answers.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::Core;
use crate::backoff::Backoff;
use crate::error::{LockError, StoreError, StoreErrorKind};
use crate::hold::{End, Held, Question};
use crate::store::{Answer, Asked, HoldStatus, Record, Released, undecided};

/// The pause between two tries of a release that the store refuses.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// A hold without shares, whose release has begun: the duty to release it.
pub(super) struct Ending {
    pub(super) core: Arc<Core>,
    pub(super) held: Arc<Held>,
    /// The table waits for its end.
    awaited: bool,
    /// Whether it was held when its last share ended.
    pub(super) is_held: bool,
    /// What the store keeps if it carries the hold until its release.
    pub(super) record: Option<Box<Record>>,
    /// The question by which it is released.
    question: Question,
    /// The answer to a question that was asked.
    pub(super) answer: Option<Answer<Released>>,
    /// When its lease is over, by the first answer that decided nothing.
    lease_over: Option<Instant>,
    /// The store may have released it without an answer.
    unanswered: Option<StoreError>,
    is_over: bool,
    /// How often it has gone on in the background.
    moves: u8,
    /// Its place among the releases that no caller waits for, until the store's first answer.
    pub(super) place: Option<OwnedSemaphorePermit>,
    /// A shutdown waits for it.
    _counted: TaskTrackerToken,
}

impl Ending {
    /// `counted`: a token from before the hold left the table.
    pub(super) fn new(
        core: Arc<Core>,
        mut held: Arc<Held>,
        awaited: bool,
        now: Instant,
        counted: TaskTrackerToken,
    ) -> Self {
        let (is_held, question) = held.begin_release(now);
        if !is_held && held.lose() {
            core.report_loss(&held, held.why_over());
        }
        Self {
            _counted: counted,
            lease_over: None,
            unanswered: None,
            core,
            held,
            awaited,
            is_held,
            record: None,
            question,
            is_over: false,
            moves: 0,
            answer: None,
            place: None,
        }
    }

    /// The same duty, for the background.
    fn moved(&mut self) -> Self {
        let answer = self.answer.take();
        let unanswered = match &answer {
            Some(_) => self.unanswered.take(),
            // It may have been asked.
            None => Some(undecided()),
        };
        Self {
            core: self.core.clone(),
            held: self.held.clone(),
            answer,
            unanswered,
            moves: self.moves + 1,
            place: self.place.take(),
            record: self.record.take(),
            _counted: self._counted.clone(),
            ..*self
        }
    }

    /// Asks until the release is decided, where no caller waits: so many of a partition at a time.
    pub(super) async fn in_turn(mut self) {
        if self.answer.is_none() && self.place.is_none() {
            let partition = self.core.store.partition_of(&self.held.hold.key);
            self.place = self.core.place(partition).acquire_owned().await.ok();
        }
        let released = match self.answer.take() {
            Some(answer) => answer.await,
            None => self.ask().answer().await,
        };
        if self.answered(released).is_none() {
            drop(self.repeated().await);
        }
    }

    /// Asks again until the release is decided, with pauses between.
    pub(super) async fn repeated(mut self) -> Result<(), LockError> {
        let mut backoff = Backoff::STORE;
        loop {
            backoff.pause().await;
            let released = self.ask().answer().await;
            if let Some(result) = self.answered(released) {
                return result;
            }
        }
    }

    pub(super) fn ask(&self) -> Asked<Released> {
        let record = self.record.as_deref().cloned();
        self.core.store.release(&self.held.hold, record)
    }

    /// The result by the store's answer; `None` if it must be asked again.
    pub(super) fn answered(
        &mut self,
        released: Result<Released, StoreError>,
    ) -> Option<Result<(), LockError>> {
        self.first_answer(&released);
        let result = self.decided(released)?;
        Some(self.ended(result))
    }

    fn decided(&mut self, released: Result<Released, StoreError>) -> Option<Result<(), LockError>> {
        let error = match released.map(|released| released.status) {
            Ok(HoldStatus::Held) => return Some(Ok(())),
            Ok(HoldStatus::Gone) => {
                // An earlier try may have released it.
                let why = self.unanswered.take();
                return Some(Err(why.map_or(LockError::Lost, LockError::from)));
            }
            Ok(HoldStatus::Unknown) => undecided(),
            Err(error) => error,
        };
        let now = Instant::now();
        let rest = || now + self.held.longest_rest(now);
        let is_over = now >= *self.lease_over.get_or_insert_with(rest);
        match error.kind() {
            // After `Unacknowledged` the hold is released, and a repeat would not find it.
            StoreErrorKind::Refused | StoreErrorKind::Conflict | StoreErrorKind::Unacknowledged => {
                Some(Err(error.into()))
            }
            _ if is_over => Some(Err(error.into())),
            StoreErrorKind::Unanswered => {
                self.unanswered = Some(error);
                None
            }
            StoreErrorKind::Unreachable | StoreErrorKind::Transient => None,
        }
    }

    /// The store has answered for the first time, which may be an error: what waits for that goes on.
    fn first_answer(&mut self, released: &Result<Released, StoreError>) {
        self.place = None;
        let released = released.as_ref().copied();
        self.freed(released.unwrap_or_else(|_| HoldStatus::Unknown.into()));
    }

    fn freed(&mut self, released: Released) {
        if std::mem::take(&mut self.awaited) {
            self.core.freed(self.held.clone(), released);
        }
    }

    /// The release has this result.
    pub(super) fn ended(&mut self, result: Result<(), LockError>) -> Result<(), LockError> {
        self.is_over = true;
        // A lost hold ends with its lease.
        if self.is_held && was_refused(&result) {
            let (core, held) = (self.core.clone(), self.held.clone());
            self.core.spawner.run(retry_refused(core, held));
        }
        finish(&self.core, &mut self.held, self.question, &result);
        result
    }
}

/// A release that is dropped before its end goes on in the background: with the answer under way, or anew if that came to nothing,
/// because its timers belong to a runtime that has ended. If the background has ended too, the result is unknown, so that no caller
/// waits for it.
impl Drop for Ending {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        if self.moves < 2 {
            let moved = self.moved();
            self.core.spawner.run(moved.in_turn());
            return;
        }
        self.freed(HoldStatus::Unknown.into());
        self.held.finish(self.question, End::Unknown(undecided()));
    }
}

fn finish(core: &Core, held: &mut Arc<Held>, question: Question, result: &Result<(), LockError>) {
    let end = match result {
        Ok(()) => End::Released,
        Err(LockError::Lost) => {
            if !held.has_ended() {
                core.report_loss(held, "gone");
            }
            End::Lost
        }
        Err(LockError::Unavailable(error) | LockError::Conflict(error)) => {
            End::Unknown(error.clone())
        }
        Err(_) => End::Unknown(undecided()),
    };
    held.finish(question, end);
}

/// Repeats a refused release until the lease is over, because the cause may end: rights and passwords may be restored.
async fn retry_refused(core: Arc<Core>, held: Arc<Held>) {
    let over = Instant::now() + held.longest_rest(Instant::now());
    while Instant::now() < over {
        tokio::time::sleep(REFUSED_PAUSE).await;
        let released = core.store.release(&held.hold, None).answer().await;
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
