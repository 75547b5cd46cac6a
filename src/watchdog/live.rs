//! The state of a hold of this process.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::SetOnce;
use tokio::time::Instant;

use super::moment::{Moment, nanos};
#[cfg(test)]
use crate::exploration::{self, Mutant};
use crate::lock::{FencingToken, Hold, Lease};
use crate::sync::{Mutex, MutexGuard};
use crate::telemetry::{ObservedHold, Route};

mod renewing;

pub(super) use renewing::{Due, Placed, RenewalState};

/// A hold of this process, from its grant to its end: `Held → Releasing → Released | Lost`, or `Held → Lost`.
///
/// Lost is final: a hold whose deadline passed without a renewal stays lost, even if the store still carries it.
///
/// A process may have a hundred thousand of them, so a lease and a token are one word each, and the flags share one.
#[derive(Debug)]
pub(crate) struct LiveHold {
    pub(crate) hold: Hold,
    /// The route of the request that it was granted to.
    pub(crate) route: Route,
    /// The duration of its lease, in nanoseconds.
    lease: u64,
    is_renewed: bool,
    is_fenced: bool,
    /// Whether a minimum was asked for, now or before. It is set under the mutex of the state, and read without it.
    has_minimum: AtomicBool,
    /// The token of its present holder, if it is fenced. It is written under the mutex of its key's shard in the queue, while
    /// no guard shares the hold.
    token: AtomicU64,
    state: Mutex<LiveState>,
}

/// Protected by one mutex. It is taken last: under that of a shard of the queue, or that of the watchdog.
///
/// `Held → Releasing` by the release, `Held → Lost` by the watchdog, `Releasing → Released | Lost` by the store's answer.
/// Between calls:
///
/// * The deadline moves only while the phase is `Held`, and only by a confirmation of the store that is newer than `confirmed`.
/// * `Released` and `Lost` are final.
#[derive(Debug)]
struct LiveState {
    phase: Phase,
    /// The time until which the store certainly keeps the hold, by this process's clock.
    deadline: Moment,
    /// When the last question was sent that the store answered with a confirmation.
    confirmed: Moment,
    /// How often the store has renewed it.
    renewals: u32,
    /// When renewal ends; [`Moment::NEVER`]: with the last share.
    limit: Moment,
    /// The limit was extended, and the watchdog does not know it yet.
    extended: bool,
    /// An owner has seen it past its deadline, it was lost before its release, or the store answered that it is gone, so that no
    /// guard is released as held.
    seen_lost: bool,
    /// Its place in the schedule of renewals, which alone changes it.
    renewal: RenewalState,
    /// When the schedule looks at it next.
    look: Moment,
    /// Boxed: most holds have nothing of it.
    rest: Option<Box<LiveRest>>,
}

#[derive(Debug, Default)]
struct LiveRest {
    /// The end of its minimum: until then the store carries it, also after its end here.
    kept_until: Option<Moment>,
    /// The end of the minimum that the store was asked for. Without its answer, it may carry the hold until then.
    asked_until: Option<Moment>,
    /// Set to the final phase, after that is reached. It exists from the first wait for that.
    ended: Option<Arc<SetOnce<Phase>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Held,
    Releasing,
    Released,
    Lost,
}

impl ObservedHold for LiveHold {
    fn hold(&self) -> &Hold {
        &self.hold
    }

    fn is_lost(&self) -> bool {
        LiveHold::is_lost(self)
    }
}

impl LiveHold {
    /// `sent` is the instant before the attempt was sent, `granted` the lease of the attempt.
    #[inline]
    pub(crate) fn new(
        hold: Hold,
        lease: Lease,
        token: Option<FencingToken>,
        sent: Instant,
        granted: Duration,
    ) -> Self {
        let sent = Moment::from(sent);
        let deadline = sent + valid_for(granted);
        Self {
            hold,
            route: Route::default(),
            lease: nanos(lease.duration()),
            is_renewed: matches!(lease, Lease::Renewed(_)),
            is_fenced: token.is_some(),
            has_minimum: AtomicBool::new(false),
            token: AtomicU64::new(token.map_or(0, FencingToken::value)),
            state: Mutex::new(LiveState {
                phase: Phase::Held,
                deadline,
                confirmed: sent,
                renewals: 0,
                limit: Moment::NEVER,
                extended: false,
                seen_lost: false,
                renewal: RenewalState::Absent,
                look: deadline,
                rest: None,
            }),
        }
    }

    pub(crate) fn lease(&self) -> Lease {
        let duration = Duration::from_nanos(self.lease);
        match self.is_renewed {
            true => Lease::Renewed(duration),
            false => Lease::Fixed(duration),
        }
    }

    /// The token of its present holder: that of the grant, or one of those that follow it.
    pub(crate) fn token(&self) -> Option<FencingToken> {
        let token = || FencingToken::new(self.token.load(Ordering::Relaxed));
        self.is_fenced.then(token)
    }

    /// The hold is handed over: the next holder has the next token.
    pub(crate) fn advance_token(&self) {
        self.token.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.state().deadline.into()
    }

    /// Whether the hold is lost: by its phase, or because its deadline has passed.
    pub(crate) fn is_lost(&self) -> bool {
        self.state().is_lost()
    }

    /// The same for the answer to an owner: a hold that an owner knows to be lost is not released as held.
    pub(crate) fn see_lost(&self) -> bool {
        let mut state = self.state();
        let is_lost = state.is_lost();
        state.seen_lost |= is_lost;
        is_lost
    }

    /// Whether an owner may know that it is lost: one has seen it past its deadline, it was lost before its release, or its
    /// release or an owner check found it gone.
    pub(crate) fn was_seen_lost(&self) -> bool {
        self.state().seen_lost
    }

    /// The store does not carry it: no guard that still waits for its end is released as held. Returns whether that is before
    /// the end.
    pub(crate) fn found_gone(&self) -> bool {
        let mut state = self.state();
        state.seen_lost = true;
        !state.has_ended()
    }

    /// Waits until the hold is lost; for ever if it is released instead.
    pub(crate) async fn lost(&self) {
        if self.ended().await != Phase::Lost {
            pending().await
        }
    }

    /// Waits for the end, and returns the final phase.
    pub(crate) async fn ended(&self) -> Phase {
        let ended = {
            let mut state = self.state();
            if state.has_ended() {
                return state.phase;
            }
            let rest = state.rest.get_or_insert_default();
            rest.ended.get_or_insert_default().clone()
        };
        *ended.wait().await
    }

    /// Released or lost.
    pub(crate) fn has_ended(&self) -> bool {
        self.state().has_ended()
    }

    pub(crate) fn phase(&self) -> Phase {
        self.state().phase
    }

    /// Sets the limit after the shares have changed.
    pub(crate) fn set_limit(&self, limit: Moment) {
        let mut state = self.state();
        state.extended |= limit > state.limit;
        state.limit = limit;
    }

    /// The store is asked to carry it until `until`.
    pub(crate) fn asks_until(&self, until: Instant) {
        let mut state = self.state();
        state.rest.get_or_insert_default().asked_until = Some(until.into());
        self.has_minimum.store(true, Ordering::Release);
    }

    /// The store was certainly not asked: it carries the hold for its lease.
    pub(crate) fn was_not_asked(&self) {
        if let Some(rest) = &mut self.state().rest {
            rest.asked_until = None;
        }
    }

    /// How long the store may carry it from now on.
    pub(crate) fn longest_rest(&self) -> Duration {
        let lease = self.lease().duration();
        if !self.has_minimum.load(Ordering::Acquire) {
            return lease;
        }
        let asked = self.state().rest.as_ref().and_then(|rest| rest.asked_until);
        asked.map_or(lease, |until| lease.max(until.since(Instant::now().into())))
    }

    /// Gives it a minimum that ends at `until`, as the store was asked. Returns `false` if the hold has ended already.
    pub(crate) fn keep_until(&self, until: Instant) -> bool {
        let mut state = self.state();
        let is_held = state.phase == Phase::Held;
        if is_held {
            state.rest.get_or_insert_default().kept_until = Some(until.into());
        }
        is_held
    }

    /// Takes the minimum back: the hold is released at its end.
    pub(crate) fn forget_minimum(&self) {
        if let Some(rest) = &mut self.state().rest {
            rest.kept_until = None;
        }
    }

    /// The end of its minimum, if that is still to come. The hold is then neither released in the store nor passed on.
    pub(crate) fn minimum(&self) -> Option<Instant> {
        if !self.has_minimum.load(Ordering::Acquire) {
            return None;
        }
        let kept = self.state().rest.as_ref()?.kept_until;
        kept.map(Instant::from)
            .filter(|until| *until > Instant::now())
    }

    /// `Held → Releasing`. Returns `false` if the hold is lost already, or was seen past its deadline.
    pub(super) fn begin_release(&self) -> bool {
        let mut state = self.state();
        let is_held = state.phase == Phase::Held && !state.seen_lost;
        if is_held {
            state.phase = Phase::Releasing;
        }
        is_held
    }

    pub(crate) fn finish(&self, phase: Phase) {
        let state = self.state();
        let has_ended = state.has_ended();
        #[cfg(test)]
        let has_ended = has_ended && !exploration::has(Mutant::LossUndone);
        if !has_ended {
            LiveState::end(state, phase);
        }
    }

    /// `Held → Lost`. Returns `false` if the hold has ended. A hold that is being released is left to its release.
    pub(super) fn lose(&self) -> bool {
        let mut state = self.state();
        let is_held = state.phase == Phase::Held;
        if is_held {
            state.seen_lost = true;
            LiveState::end(state, Phase::Lost);
        }
        is_held
    }

    fn state(&self) -> MutexGuard<'_, LiveState> {
        self.state.lock()
    }
}

impl LiveState {
    fn is_lost(&self) -> bool {
        match self.phase {
            Phase::Held => Instant::now() >= self.deadline.into(),
            Phase::Lost => true,
            Phase::Releasing | Phase::Released => false,
        }
    }

    fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Released | Phase::Lost)
    }

    /// Reaches a final phase.
    fn end(mut state: MutexGuard<'_, Self>, phase: Phase) {
        state.phase = phase;
        let ended = state.rest.as_ref().and_then(|rest| rest.ended.clone());
        // Outside the mutex, because it runs wakers.
        drop(state);
        if let Some(ended) = ended {
            // A final phase is reached once.
            let _ = ended.set(phase);
        }
    }
}

/// How long a lease is valid by the holder's clock, from before the question was sent: less 1 % and 2 ms for drift.
pub(crate) fn valid_for(lease: Duration) -> Duration {
    lease.saturating_sub(lease / 100 + Duration::from_millis(2))
}
