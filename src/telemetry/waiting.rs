use std::mem;
use std::sync::Arc;

use tokio::time::Instant;
use tracing::Span;
use tracing::field::Empty;

use super::database::{self, Database};
use super::{Followed, Holding, ObservedHold, Route, TARGET, digests, metrics};
use crate::error::LockError;
use crate::lock::LockKey;

/// A request for locks, from its first poll until it is granted, refused or dropped.
pub(crate) struct Waiting {
    route: Route,
    mode: &'static str,
    began: Instant,
    span: Span,
    followed: Followed,
    gauges: metrics::Gauges,
    /// Counts the request as waiting.
    _waiter: metrics::Counted,
    ended: bool,
}

impl Waiting {
    /// `keys` is called only if the span or the event is on.
    pub(crate) fn begin<'a>(
        route: &Route,
        mode: &'static str,
        began: Instant,
        followed: Followed,
        database: &Database,
        keys: impl Fn() -> Vec<&'a LockKey>,
    ) -> Self {
        let span = tracing::debug_span!(
            target: TARGET,
            "lock_wait",
            key = %digests(&keys),
            mode,
            outcome = Empty,
            waited_ms = Empty,
            otel.kind = database.kind(),
            db.system.name = Empty,
            server.address = Empty,
            server.port = Empty,
            error.type = Empty,
            otel.status_code = Empty
        );
        database.record(&span);
        tracing::trace!(target: TARGET, parent: &span, keys = ?keys(), "waiting");
        let gauges = metrics::Gauges::of(route, mode);
        Self {
            _waiter: gauges.waiter(),
            gauges,
            route: route.clone(),
            mode,
            began,
            span,
            followed,
            ended: false,
        }
    }

    /// The span of the wait; `None` if it is off.
    pub(crate) fn span(&self) -> Option<Span> {
        (!self.span.is_disabled()).then(|| self.span.clone())
    }

    /// Begins to observe the hold; `None` if neither metrics nor spans nor the journal are on. `lives` are the holds behind
    /// the guard.
    pub(crate) fn granted<'a, T: ObservedHold + 'static>(
        mut self,
        lives: impl Iterator<Item = &'a Arc<T>> + Clone,
    ) -> Option<Holding> {
        self.end("granted");
        for live in lives.clone() {
            tracing::debug!(target: TARGET, parent: &self.span, hold = %live.hold().id, "granted");
        }
        let followed = mem::take(&mut self.followed);
        Holding::begin(self.route.clone(), self.mode, self.gauges, followed, lives)
    }

    pub(crate) fn refused(mut self, error: &LockError) {
        let outcome = outcome(error);
        self.end(outcome);
        // That a lock is in use, or a client ends, is no failure of the request.
        if !matches!(error, LockError::Busy { .. } | LockError::Shutdown) {
            database::failed(&self.span, outcome);
        }
        tracing::debug!(target: TARGET, parent: &self.span, outcome, "not granted");
        metrics::refused(&self.route, self.mode, error);
        self.followed
            .refused(&self.route, self.mode, error, self.began);
    }

    fn end(&mut self, outcome: &'static str) {
        self.ended = true;
        if !self.span.is_disabled() {
            self.span.record("outcome", outcome);
            self.span
                .record("waited_ms", self.began.elapsed().as_millis() as u64);
        }
        self.gauges.record_wait(self.began);
        self.followed.waited(&self.route, self.mode, self.began);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.ended {
            self.end("cancelled");
            tracing::debug!(target: TARGET, parent: &self.span, outcome = "cancelled", "not granted");
        }
    }
}

/// The short name of a refusal, as the spans of waits have it.
pub(crate) fn outcome(error: &LockError) -> &'static str {
    match error {
        LockError::Busy { .. } => "contended",
        LockError::Overloaded => "overloaded",
        LockError::Unavailable(_) => "unavailable",
        LockError::Conflict(_) => "conflict",
        LockError::Lost => "lost",
        LockError::Shutdown => "shutdown",
        LockError::Upgrade | LockError::Unsupported(_) | LockError::Invalid(_) => "misused",
    }
}
