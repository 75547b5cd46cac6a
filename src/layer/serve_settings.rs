//! The settings that both layers have.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::request::Parts;
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

/// How long a request may hold its lock, unless the layer has another limit or a longer lease.
const MAX_HOLD: Duration = Duration::from_secs(300);

/// How a layer of this crate serves a request under its lock.
#[derive(Clone)]
pub(crate) struct ServeSettings {
    pub(crate) client: LockClient,
    pub(crate) wait: Arc<dyn WaitPolicy>,
    pub(crate) lease: Lease,
    /// `None`: the default.
    pub(crate) max_hold: Option<Duration>,
    pub(crate) max_waiters: usize,
    /// Whether those who wait for a key hold it one after the other. Otherwise the end of one hold serves all of them.
    pub(crate) waiters_take_turns: bool,
    pub(crate) body_budget: BodyBudget,
    pub(crate) on_cancel: OnCancel,
    pub(crate) responder: Responder,
    pub(crate) hold_times: Arc<HoldTimes>,
    /// Whether the store did not answer the latest request.
    pub(crate) store_is_down: Arc<AtomicBool>,
}

impl ServeSettings {
    pub(crate) fn new(client: LockClient, wait: Duration, max_waiters: usize) -> Self {
        Self {
            client,
            wait: Arc::new(wait),
            lease: Lease::default(),
            max_hold: None,
            max_waiters,
            waiters_take_turns: true,
            body_budget: BodyBudget::default(),
            on_cancel: OnCancel::default(),
            responder: Responder::default(),
            hold_times: Arc::default(),
            store_is_down: Arc::default(),
        }
    }

    /// Checks the settings; the error names what is wrong.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        limits::check(self.lease, self.max_hold)
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
        let max_hold = self.max_hold;
        let max_hold = max_hold.unwrap_or_else(|| MAX_HOLD.max(self.lease.duration()));
        request
            .wait(wait)
            .lease(self.lease)
            .max_waiters(self.max_waiters)
            .max_hold(max_hold)
            .route(*route)
    }

    /// Refuses by its head a request that would be refused anyway, before its body is read. `needs_store`: also if the store is down for its keys.
    pub(crate) async fn foresee(
        &self,
        request: &LockRequest,
        needs_store: bool,
    ) -> Result<(), LockError> {
        request.refusal()?;
        if needs_store && self.is_down() {
            // Boxed, because it is rare and large.
            Box::pin(request.probe()).await?;
            self.store_is_down.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether the store did not answer the latest request.
    pub(crate) fn is_down(&self) -> bool {
        self.store_is_down.load(Ordering::Relaxed)
    }

    /// Remembers that the store is down, if that is the error.
    pub(crate) fn failed(&self, error: &LockError) {
        if matches!(error, LockError::Unavailable(_)) {
            self.store_is_down.store(true, Ordering::Relaxed);
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
                average.min(retry_after.unwrap_or_default())
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
