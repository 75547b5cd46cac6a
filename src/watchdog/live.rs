//! The state of a hold of this process.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

#[cfg(test)]
use crate::exploration::{self, Mutant};
use crate::lock::{FencingToken, Hold, Lease};
use crate::sync::{Mutex, MutexGuard};
use crate::telemetry::{ObservedHold, Route};

/// A hold of this process, from its grant to its end: `Held → Releasing → Released | Lost`, or `Held → Lost`.
///
/// Lost is final: a hold whose deadline passed without a renewal stays lost, even if the store still carries it.
#[derive(Debug)]
pub(crate) struct LiveHold {
    /// Distinguishes the holds of one process: a nested read has the id of the write above it.
    pub(crate) serial: u64,
    pub(crate) hold: Hold,
    pub(crate) lease: Lease,
    /// The token of the grant itself; hand-overs inside the process use the following ones.
    pub(crate) token: Option<FencingToken>,
    /// The route of the request that it was granted to.
    pub(crate) route: Route,
    /// Whether it has, or had, a minimum. It is set under the mutex of the state, and read without it.
    has_minimum: AtomicBool,
    state: Mutex<LiveState>,
    changed: Notify,
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
    deadline: Instant,
    /// When the last question was sent that the store answered with a confirmation.
    confirmed: Instant,
    /// How often the store has renewed it.
    renewals: u32,
    /// When renewal ends; `None`: with the last share.
    limit: Option<Instant>,
    /// The limit was extended, and the watchdog does not know it yet.
    extended: bool,
    /// The end of its minimum: until then the store carries it, also after its end here.
    kept_until: Option<Instant>,
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
    pub(crate) fn new(
        hold: Hold,
        lease: Lease,
        token: Option<FencingToken>,
        sent: Instant,
        granted: Duration,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            serial: NEXT.fetch_add(1, Ordering::Relaxed),
            hold,
            lease,
            token,
            route: Route::default(),
            has_minimum: AtomicBool::new(false),
            state: Mutex::new(LiveState {
                phase: Phase::Held,
                deadline: valid_until(sent, granted),
                confirmed: sent,
                renewals: 0,
                limit: None,
                extended: false,
                kept_until: None,
            }),
            changed: Notify::new(),
        }
    }

    pub(crate) fn on(self, route: Route) -> Self {
        Self { route, ..self }
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.state().deadline
    }

    /// How often the store has renewed it.
    #[cfg(feature = "console")]
    pub(crate) fn renewals(&self) -> u32 {
        self.state().renewals
    }

    /// Whether the hold is lost: by its phase, or because its deadline has passed.
    pub(crate) fn is_lost(&self) -> bool {
        let state = self.state();
        match state.phase {
            Phase::Held => Instant::now() >= state.deadline,
            Phase::Lost => true,
            Phase::Releasing | Phase::Released => false,
        }
    }

    /// Waits until the hold is lost; for ever if it is released instead.
    pub(crate) async fn lost(&self) {
        self.reach(|phase| phase == Phase::Lost).await;
    }

    /// Waits for the end, and returns the final phase.
    pub(crate) async fn ended(&self) -> Phase {
        self.reach(|phase| matches!(phase, Phase::Released | Phase::Lost))
            .await
    }

    /// Released or lost.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.phase(), Phase::Released | Phase::Lost)
    }

    async fn reach(&self, wanted: impl Fn(Phase) -> bool) -> Phase {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the state is read, so that no change is missed between the two.
            changed.as_mut().enable();
            let phase = self.phase();
            if wanted(phase) {
                return phase;
            }
            changed.await;
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.state().phase
    }

    /// Moves the deadline after a renewal. The deadline may become earlier if a limit shortened the lease. A renewal after
    /// the deadline has no effect.
    pub(crate) fn renewed(&self, sent: Instant, lease: Duration) {
        let mut state = self.state();
        let in_time = Instant::now() < state.deadline;
        #[cfg(test)]
        let in_time = in_time || exploration::has(Mutant::LateRenewal);
        // An answer that a later one has overtaken is ignored.
        if state.phase == Phase::Held && in_time && sent >= state.confirmed {
            state.deadline = valid_until(sent, lease);
            state.confirmed = sent;
            state.renewals += 1;
        }
    }

    /// When the last question was sent that the store answered with a confirmation.
    pub(super) fn confirmed(&self) -> Instant {
        self.state().confirmed
    }

    /// How long the renewal is overdue.
    pub(crate) fn overdue(&self) -> Duration {
        let since = self.state().confirmed.elapsed();
        since.saturating_sub(self.lease.duration() / 3)
    }

    /// The lease of the next renewal, cut at the limit. `None`: the limit is reached.
    pub(crate) fn next_lease(&self, now: Instant) -> Option<Duration> {
        let lease = self.lease.duration();
        match self.state().limit {
            None => Some(lease),
            Some(limit) if limit <= now => None,
            Some(limit) => Some(lease.min(limit - now)),
        }
    }

    /// When a new hold is first renewed: at any time within a third of its lease, short holds excepted, so that holds that
    /// were granted together are not renewed together ever after.
    pub(super) fn first_look(&self) -> Instant {
        const PARTS: u32 = 1024;
        let state = self.state();
        match self.lease {
            Lease::Renewed(lease) => {
                let part = fastrand::u32(PARTS / 4..=PARTS);
                (state.confirmed + lease / (3 * PARTS) * part).min(state.deadline)
            }
            Lease::Fixed(_) => state.deadline,
        }
    }

    /// When to renew it again after a renewal for `lease` that was sent at `sent`: a third of the lease later; earlier, if
    /// the renewal was cut short by a limit that was extended while it was under way.
    pub(super) fn next_look(&self, sent: Instant, lease: Duration) -> Instant {
        let full = self.lease.duration();
        let allowed = self.next_lease(sent).unwrap_or_default();
        let is_cut_too_short = lease < full && lease < allowed;
        sent + if is_cut_too_short { lease } else { full } / 3
    }

    /// Why a hold whose deadline passed has ended.
    pub(super) fn why_over(&self) -> &'static str {
        let state = self.state();
        let unlimited = state.confirmed + self.lease.duration();
        match self.lease {
            _ if state.limit.is_some_and(|limit| limit < unlimited) => "its longest hold was over",
            Lease::Fixed(_) => "its lease was over",
            Lease::Renewed(_) => "its lease was over before it was renewed",
        }
    }

    /// Sets the limit after the shares have changed.
    pub(crate) fn set_limit(&self, limit: Option<Instant>) {
        let mut state = self.state();
        let is_later = match (state.limit, limit) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(before), Some(now)) => now > before,
        };
        state.extended |= is_later;
        state.limit = limit;
    }

    /// When to renew a hold whose lease was cut short by a limit that was extended since. Returns it once.
    pub(crate) fn take_extended(&self) -> Option<Instant> {
        let mut state = self.state();
        let lease = self.lease.duration();
        let is_cut = state.deadline < valid_until(state.confirmed, lease);
        let is_extended = std::mem::take(&mut state.extended);
        let next = state.confirmed + (state.deadline - state.confirmed) / 3;
        (is_extended && is_cut && state.phase == Phase::Held).then_some(next)
    }

    /// Gives it a minimum that ends at `until`. Returns `false` if the hold has ended already.
    pub(crate) fn keep_until(&self, until: Instant) -> bool {
        let mut state = self.state();
        let is_held = state.phase == Phase::Held;
        if is_held {
            state.kept_until = Some(until);
            self.has_minimum.store(true, Ordering::Release);
        }
        is_held
    }

    /// The end of its minimum, if that is still to come. The hold is then neither released in the store nor passed on.
    pub(crate) fn minimum(&self) -> Option<Instant> {
        if !self.has_minimum.load(Ordering::Acquire) {
            return None;
        }
        let kept = self.state().kept_until;
        kept.filter(|until| *until > Instant::now())
    }

    /// `Held → Releasing`. Returns `false` if the hold is lost already.
    pub(crate) fn begin_release(&self) -> bool {
        let mut state = self.state();
        if state.phase != Phase::Held {
            return false;
        }
        state.phase = Phase::Releasing;
        true
    }

    pub(crate) fn finish(&self, phase: Phase) {
        {
            let mut state = self.state();
            let has_ended = matches!(state.phase, Phase::Released | Phase::Lost);
            #[cfg(test)]
            let has_ended = has_ended && !exploration::has(Mutant::LossUndone);
            if has_ended {
                return;
            }
            state.phase = phase;
        }
        self.changed.notify_waiters();
    }

    /// `Held → Lost`. Returns `false` if the hold has ended. A hold that is being released is left to its release.
    pub(super) fn lose(&self) -> bool {
        {
            let mut state = self.state();
            if state.phase != Phase::Held {
                return false;
            }
            state.phase = Phase::Lost;
        }
        self.changed.notify_waiters();
        true
    }

    fn state(&self) -> MutexGuard<'_, LiveState> {
        self.state.lock()
    }
}

/// The end of a lease by the holder's clock: counted from before the question was sent, less 1 % and 2 ms for drift.
pub(crate) fn valid_until(sent: Instant, lease: Duration) -> Instant {
    sent + lease.saturating_sub(lease / 100 + Duration::from_millis(2))
}
