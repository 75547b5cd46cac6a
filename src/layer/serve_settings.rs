//! The settings that both layers have.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::request::Parts;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::body_budget::BodyBudget;
use super::hold_times::{HoldTimes, TimedHold, retry_after};
use super::rejection::{Rejection, RejectionKind};
use super::respond::Responder;
use super::settings::OnCancel;
use super::wait::WaitPolicy;
use crate::client::{LockClient, LockRequest};
use crate::error::LockError;
use crate::limits::{self, FOR_EVER};
use crate::lock::Lease;
use crate::telemetry::Route;

/// How long a request may hold its lock, unless the program has set another limit or a longer lease.
pub(crate) const MAX_HOLD: Duration = Duration::from_secs(300);

/// How long a request waits for its lock, unless the program says so.
pub(crate) const WAIT: Duration = Duration::from_secs(10);

/// The tenant of a request, by its head.
pub(crate) type TenantOf = Arc<dyn Fn(&Parts) -> Option<String> + Send + Sync>;

/// How a layer of this crate serves a request under its lock.
#[derive(Clone)]
pub(crate) struct ServeSettings {
    pub(crate) client: LockClient,
    /// Whose things a request locks; `None`: those of all clients are one.
    pub(crate) tenant: Option<TenantOf>,
    /// Whether requests without a tenant share their keys.
    pub(crate) anonymous: bool,
    pub(crate) wait: Arc<dyn WaitPolicy>,
    pub(crate) lease: Lease,
    /// `None`: the default.
    pub(crate) max_hold: Option<Duration>,
    pub(crate) max_waiters: usize,
    /// Whether each of those who wait for a key holds it for as long as the first. Otherwise they hold it only to find its record.
    pub(crate) waiters_take_turns: bool,
    pub(crate) body_budget: BodyBudget,
    pub(crate) on_cancel: OnCancel,
    pub(crate) responder: Responder,
    pub(crate) hold_times: Arc<HoldTimes>,
    /// Whether the store was down when it was last asked, and the turn to ask it before a body is read.
    pub(crate) outage: Arc<(AtomicBool, Mutex<()>)>,
}

impl ServeSettings {
    pub(crate) fn new(client: LockClient, wait: Duration, max_waiters: usize) -> Self {
        Self {
            client,
            tenant: None,
            anonymous: false,
            wait: Arc::new(wait),
            lease: Lease::default(),
            max_hold: None,
            max_waiters,
            waiters_take_turns: true,
            body_budget: BodyBudget::default(),
            on_cancel: OnCancel::default(),
            responder: Responder::default(),
            hold_times: Arc::default(),
            outage: Arc::default(),
        }
    }

    /// Checks the settings; the error names what is wrong.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        limits::check(self.lease, self.max_hold)
    }

    /// The tenant of a request; `None`: it shares its keys with all such requests.
    ///
    /// # Errors
    ///
    /// The program has put no tenant into the request, and requests without one are not `anonymous`.
    pub(crate) fn tenant(&self, parts: &Parts) -> Result<Option<String>, LockError> {
        let Some(tenant) = &self.tenant else {
            return Ok(None);
        };
        match tenant(parts) {
            None if !self.anonymous => Err(LockError::invalid(
                "a request has no tenant, so that it would share its keys with strangers: put the authentication outside of the \
                 layer (axum runs the layer that is added last first), or call `anonymous` if requests without a tenant are meant \
                 to share their keys",
            )),
            tenant => Ok(tenant),
        }
    }

    /// How long a request may wait.
    pub(crate) fn wait(&self, parts: &Parts) -> Duration {
        self.wait.wait(parts).min(FOR_EVER)
    }

    /// The same request with these settings, and with `wait`, which is that of the settings at most.
    pub(crate) fn request(
        &self,
        request: LockRequest,
        wait: Duration,
        route: &Route,
    ) -> LockRequest {
        let request = match self.max_hold {
            Some(max_hold) => request.max_hold(max_hold),
            None => request,
        };
        request
            .wait(wait)
            .lease(self.lease)
            .max_waiters(self.max_waiters)
            .or_limits(WAIT, MAX_HOLD)
            .route(*route)
    }

    /// Refuses by its head a request that would be refused anyway, before its body is read. If it `needs_store` and the store was down,
    /// the store is asked about its keys, for one request at a time: a store that is silent keeps no others, and a part that is down
    /// none that ask another part. Returns how long that took.
    pub(crate) async fn foresee(
        &self,
        request: &mut LockRequest,
        needs_store: bool,
    ) -> Result<Duration, LockError> {
        request.refusal()?;
        let (is_down, turn) = &*self.outage;
        if needs_store
            && is_down.load(Ordering::Relaxed)
            && request.waits()
            && let Ok(_turn) = turn.try_lock()
        {
            // Boxed, because it is rare and large.
            let took = Box::pin(request.probe()).await?;
            is_down.store(false, Ordering::Relaxed);
            return Ok(took);
        }
        Ok(Duration::ZERO)
    }

    /// Remembers that the store is down, if that is the error.
    pub(crate) fn failed(&self, error: &LockError) {
        if matches!(error, LockError::Unavailable(_)) {
            self.outage.0.store(true, Ordering::Relaxed);
        }
    }

    /// The hold of a request that asked for its lock at `asked`, and got it at `granted`.
    pub(crate) fn timed_hold(&self, asked: Instant, granted: Instant, route: &Route) -> TimedHold {
        TimedHold {
            waited: granted - asked,
            granted,
            held: None,
            route: *route,
            hold_times: self.hold_times.clone(),
        }
    }

    /// The same rejection of a request of this route with the time for the next attempt. Without a measurement it is soon: most holds
    /// are far shorter than their leases.
    pub(crate) fn timed(&self, rejection: Rejection, route: &Route) -> Rejection {
        let average = self.hold_times.average(route);
        let after = match (rejection.kind(), rejection.cause()) {
            // The probable end of the present hold, and at the latest the end of its lease.
            (_, Some(LockError::Busy { retry_after })) => {
                retry_after.map_or(average, |left| average.min(left))
            }
            // The time after which those who wait have probably had their turns.
            (RejectionKind::Overloaded, _) if self.waiters_take_turns => {
                let turns = u32::try_from(self.max_waiters).unwrap_or(u32::MAX);
                average.saturating_mul(turns)
            }
            (RejectionKind::Overloaded, _) => average,
            _ => return rejection,
        };
        rejection.with_retry_after(retry_after(after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::MemoryStore;

    #[tokio::test(start_paused = true)]
    async fn without_the_end_of_a_hold_its_average_time_is_told() {
        let client = LockClient::new(MemoryStore::new());
        let settings = ServeSettings::new(client, Duration::ZERO, 1);
        let (route, began) = (Route::default(), Instant::now());
        let held = settings.timed_hold(began, began, &route);
        tokio::time::sleep(Duration::from_secs(8)).await;
        drop(held);
        for (retry_after, times) in [(None, 8..=16), (Some(Duration::from_secs(3)), 3..=6)] {
            let busy = Rejection::from(LockError::Busy { retry_after });
            let told = settings.timed(busy, &route).retry_after();
            assert!(
                times.contains(&told.expect("it is busy").as_secs()),
                "{told:?}"
            );
        }
    }
}
