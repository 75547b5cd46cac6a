//! One grant of the store: until when it is held, when the store last carried it, and how it ended.

use std::future::pending;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::span;

use crate::error::{LockError, StoreError};
use crate::lock::{FencingToken, Hold, Lease};
use crate::store::HoldStatus;
use crate::sync::{Mutex, MutexGuard, caught};
use crate::telemetry::{ObservedHold, Route};

mod due;
mod minimum;
#[cfg(test)]
mod tests;

pub(crate) use due::Due;
use minimum::Minimum;

/// Everything that this process knows of one grant.
///
/// What an ended share may say of its work is one comparison, [`Held::verdict`]: the store carried the hold at a later question,
/// for a check, a renewal or a release. No method that only reads changes anything.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) hold: Hold,
    pub(crate) lease: Lease,
    /// The route of the request that it was granted to.
    pub(crate) route: Route,
    /// Where it is in the wheel of its shard. Only the shard uses it, under its mutex.
    pub(crate) place: AtomicU32,
    is_fenced: bool,
    /// The token of the present holder, if the hold is fenced. It is written under the mutex of its shard, while no guard shares it.
    token: AtomicU64,
    /// The id of the span of the latest guard that holds it; 0 if it is off.
    span: AtomicU64,
    state: Mutex<State>,
}

/// Protected by a mutex that is taken last: under that of a shard, and never the other way round.
///
/// `held → releasing → ended`, or `held → ended`; if its last share ends before its minimum is over, `held → left → ended`. Between
/// calls:
///
/// * `deadline` moves only by an answer "held" to a renewal that came before it, never back, and never past `limit`.
/// * `held_through` never moves back; it also moves after the end, because it is a fact about the store.
/// * `end` is final. A hold that is past its deadline and not being released is lost, even before the keeper has noticed.
#[derive(Debug)]
struct State {
    /// Until when the store certainly keeps the hold, by this process's clock.
    deadline: Instant,
    /// How many questions were sent about it.
    questions: u64,
    /// The latest of them that the store answered with "held".
    held_through: u64,
    /// When the longest hold of its holder is over. No deadline is later.
    limit: Option<Instant>,
    /// A release has begun: it decides how the hold ends.
    releasing: bool,
    /// A renewal is under way, or its partition does not answer.
    asked: bool,
    /// Boxed: few holds have one.
    minimum: Option<Box<Minimum>>,
    end: Option<End>,
    /// Notified of a later `held_through` and of the end; made by the first who waits.
    changed: Option<Arc<Notify>>,
}

/// The number of a question about a hold. A clock may stand still between the end of a share and the next question, so that instants
/// would not tell which came first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Question(u64);

/// How a hold has ended.
#[derive(Debug, Clone)]
pub(crate) enum End {
    /// The store carried it until its release.
    Released,
    /// Its deadline passed, or the store does not carry it.
    Lost,
    /// The store did not say whether it carried it.
    Unknown(StoreError),
}

impl ObservedHold for Held {
    fn hold(&self) -> &Hold {
        &self.hold
    }

    fn is_lost(&self) -> bool {
        Held::is_lost(self, Instant::now())
    }

    fn enter(&self, span: &span::Id) {
        self.span.store(span.into_u64(), Ordering::Relaxed);
    }
}

impl Held {
    /// A hold that was granted until `granted_until`: a [valid time](valid_for) from before the question was sent.
    pub(crate) fn new(
        hold: Hold,
        lease: Lease,
        route: Route,
        token: Option<FencingToken>,
        granted_until: Instant,
    ) -> Self {
        Self {
            hold,
            lease,
            route,
            place: AtomicU32::new(u32::MAX),
            is_fenced: token.is_some(),
            token: AtomicU64::new(token.map_or(0, FencingToken::value)),
            span: AtomicU64::new(0),
            state: Mutex::new(State {
                deadline: granted_until,
                questions: 0,
                held_through: 0,
                limit: None,
                releasing: false,
                asked: false,
                minimum: None,
                end: None,
                changed: None,
            }),
        }
    }

    /// The token of its present holder: that of the grant, or one of those that follow it.
    pub(crate) fn token(&self) -> Option<FencingToken> {
        let token = || FencingToken::new(self.token.load(Ordering::Relaxed));
        self.is_fenced.then(token)
    }

    /// The span of the latest guard that holds it, which may have ended.
    pub(crate) fn span(&self) -> Option<span::Id> {
        let id = NonZeroU64::new(self.span.load(Ordering::Relaxed));
        id.map(span::Id::from_non_zero_u64)
    }

    /// It is handed over: its next holder may have it until `limit`, and has the next token. Returns whether the keeper must visit it
    /// now, because its renewals may have ended or been cut at the limit before.
    pub(crate) fn hand_over(&self, limit: Option<Instant>, now: Instant) -> bool {
        self.token.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.limit = limit;
        !state.asked && state.deadline < now + self.lease.duration() * 2 / 3
    }

    /// When the longest hold of its holder is over.
    pub(crate) fn limit(&self) -> Option<Instant> {
        self.state.lock().limit
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.state.lock().deadline
    }

    /// Whether it was lost: it ended so, or its deadline has passed before its release began.
    pub(crate) fn is_lost(&self, now: Instant) -> bool {
        self.state.lock().is_lost(now)
    }

    /// Whether it is held, and no release has begun.
    pub(crate) fn is_open(&self, now: Instant) -> bool {
        let state = self.state.lock();
        state.is_open() && now < state.deadline
    }

    /// Whether its loss was noticed.
    pub(crate) fn was_lost(&self) -> bool {
        matches!(self.state.lock().end, Some(End::Lost))
    }

    #[cfg(all(test, shuttle))]
    pub(crate) fn end(&self) -> Option<End> {
        self.state.lock().end.clone()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state.lock().end.is_some()
    }

    /// A question about it is sent after this.
    pub(crate) fn question(&self) -> Question {
        let mut state = self.state.lock();
        state.questions += 1;
        Question(state.questions)
    }

    /// The latest question that was sent. A later one that is answered "held" confirms a share that ends now.
    pub(crate) fn latest_question(&self) -> Question {
        Question(self.state.lock().questions)
    }

    /// A release begins, with this question, of a share that ended at `now`. Returns `false` if the hold is lost, because its release
    /// does not confirm it then.
    pub(crate) fn begin_release(self: &mut Arc<Self>, now: Instant) -> (bool, Question) {
        match Arc::get_mut(self) {
            Some(held) => held.state.get_mut().begin_release(now),
            None => {
                let mut state = self.state.lock();
                // Read under the mutex: who has read a later time has seen a lost hold.
                state.begin_release(Instant::now())
            }
        }
    }

    /// Reads or changes its state, without the mutex as long as no other part of the process has seen it.
    fn change<T>(self: &mut Arc<Self>, change: impl FnOnce(&mut State) -> T) -> T {
        match Arc::get_mut(self) {
            Some(held) => change(held.state.get_mut()),
            None => change(&mut self.state.lock()),
        }
    }

    /// It is lost. Returns `false` if it has ended, or a release decides that.
    pub(crate) fn lose(&self) -> bool {
        let mut state = self.state.lock();
        let is_lost = state.may_be_lost();
        if is_lost {
            state.end = Some(End::Lost);
            State::notify(state);
        }
        is_lost
    }

    /// Its release has ended, by this question.
    pub(crate) fn finish(self: &mut Arc<Self>, question: Question, end: End) {
        if Arc::get_mut(self).is_some() {
            // No other part of the process sees how it ended.
            return;
        }
        let mut state = self.state.lock();
        if matches!(end, End::Released) {
            state.held_through = state.held_through.max(question.0);
        }
        state.end.get_or_insert(end);
        State::notify(state);
    }

    /// The store has answered a question about it: a check, or a renewal that was sent at an instant for a lease. Returns whether it is gone: then it is lost,
    /// unless its release decides that.
    ///
    /// This, [`finish`](Self::finish) and [`lose`](Self::lose) are the only places where an answer becomes a fact.
    pub(crate) fn answered(
        &self,
        question: Question,
        status: HoldStatus,
        renewed: Option<(Instant, Duration)>,
    ) -> bool {
        let mut state = self.state.lock();
        // Read under the mutex: who has read a later time has seen a lost hold.
        let now = Instant::now();
        match status {
            HoldStatus::Held => {
                state.held_through = state.held_through.max(question.0);
                let in_time = now < state.deadline;
                if let Some((sent, lease)) = renewed.filter(|_| state.is_open() && in_time) {
                    let until = sent + valid_for(lease);
                    let until = state.limit.map_or(until, |limit| until.min(limit));
                    // No renewal shortens what the store keeps.
                    state.deadline = state.deadline.max(until);
                }
                State::notify(state);
                false
            }
            HoldStatus::Gone => state.may_be_lost(),
            HoldStatus::Unknown => false,
        }
    }

    /// What the work of a share may say that ended after the question `last`. `None`: it is not known yet.
    pub(crate) fn verdict(&self, last: Question) -> Option<Result<(), LockError>> {
        self.state.lock().verdict(last)
    }

    /// Waits for the verdict.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(crate) async fn confirmed(&self, last: Question) -> Result<(), LockError> {
        self.wait_for(|state| state.verdict(last)).await
    }

    /// Waits until it is lost; forever if it ends otherwise.
    pub(crate) async fn lost(&self) {
        let is_lost = self.wait_for(|state| state.end.as_ref().map(|end| matches!(end, End::Lost)));
        if !is_lost.await {
            pending().await
        }
    }

    async fn wait_for<T>(&self, mut ready: impl FnMut(&State) -> Option<T>) -> T {
        loop {
            let changed = {
                let mut state = self.state.lock();
                if let Some(value) = ready(&state) {
                    return value;
                }
                let changed = state.changed.get_or_insert_default().clone();
                // Registered before the mutex is unlocked, so that no change is missed.
                let mut changed = Box::pin(changed.notified_owned());
                changed.as_mut().enable();
                changed
            };
            caught(changed).await;
        }
    }
}

impl State {
    fn begin_release(&mut self, now: Instant) -> (bool, Question) {
        let is_held = self.is_open() && now < self.deadline;
        self.releasing |= is_held;
        self.questions += 1;
        (is_held, Question(self.questions))
    }

    /// Whether it is lost if the store does not carry it: no release decides that.
    fn may_be_lost(&self) -> bool {
        self.end.is_none() && !self.releasing
    }

    fn is_open(&self) -> bool {
        self.end.is_none() && !self.releasing && self.left_until().is_none()
    }

    fn is_lost(&self, now: Instant) -> bool {
        match self.end {
            None => !self.releasing && now >= self.deadline,
            Some(End::Lost) => true,
            Some(End::Released | End::Unknown(_)) => false,
        }
    }

    fn verdict(&self, last: Question) -> Option<Result<(), LockError>> {
        if self.held_through > last.0 {
            return Some(Ok(()));
        }
        Some(match self.end.as_ref()? {
            End::Released => Ok(()),
            End::Lost => Err(LockError::Lost),
            End::Unknown(error) => Err(error.clone().into()),
        })
    }

    /// Wakes those who wait, after the mutex is unlocked.
    fn notify(state: MutexGuard<'_, Self>) {
        let changed = state.changed.clone();
        drop(state);
        if let Some(changed) = changed {
            changed.notify_waiters();
        }
    }
}

/// How long a lease is valid by the holder's clock, from before the question was sent: less 1 % and 2 ms for drift.
pub(crate) fn valid_for(lease: Duration) -> Duration {
    lease.saturating_sub(lease / 100 + Duration::from_millis(2))
}
