use std::sync::Arc;

use tokio::time::Instant;
use tracing::field::Empty;
use tracing::{Span, span};

use super::database::{self, Database};
use super::holding::Holding;
use super::{Labels, ObservedHold, Route, TARGET, digests, metrics, outcome};
use crate::error::LockError;
use crate::lock::LockKey;
use crate::sync::call_outside;

/// A request for locks, from its first poll until it is granted, refused or dropped.
pub(crate) struct Waiting {
    labels: Labels,
    gauges: metrics::Gauges,
    has_ended: bool,
    began: Instant,
    span: Span,
    /// Counts the request as waiting.
    _waiter: metrics::Counted,
}

impl Waiting {
    /// `keys` is called only if the span or the event is on.
    pub(crate) fn begin<'a>(
        route: &Route,
        mode: &'static str,
        began: Instant,
        database: &Database,
        keys: impl Fn() -> Vec<&'a LockKey>,
    ) -> Self {
        let span = super::span(|| {
            tracing::debug_span!(
                target: TARGET,
                "lock_wait",
                key = %digests(&keys),
                mode,
                outcome = Empty,
                waited_ms = Empty,
                otel.kind = database.kind(),
                db.system.name = database.system,
                db.operation.name = database.operation,
                db.stored_procedure.name = database.procedure(mode),
                server.address = database.address.as_deref(),
                server.port = database.port,
                error.type = Empty,
                otel.status_code = Empty
            )
        });
        tracing::trace!(target: TARGET, parent: &span, keys = ?keys(), "waiting");
        let labels = Labels(*route, mode);
        let gauges = metrics::Gauges::of(&labels);
        Self {
            _waiter: gauges.waiter(),
            labels,
            gauges,
            has_ended: false,
            began,
            span,
        }
    }

    /// The span of the wait; `None` if it is off.
    pub(crate) fn span(&self) -> Option<Span> {
        (!self.span.is_disabled()).then(|| self.span.clone())
    }

    /// The request waits for holders of this process, whose guards have these spans. They are looked up only if the span is on.
    pub(crate) fn wait_for(&self, mut holders: impl Iterator<Item = span::Id>) {
        while !self.span.is_disabled()
            && let Some(holder) = holders.next()
        {
            // The holder's may have ended, which not every subscriber expects.
            call_outside("a subscriber", || {
                self.span.follows_from(holder);
            });
        }
    }

    /// Begins to observe the hold; `None` if neither metrics nor spans are on. `lives` are the holds behind
    /// the guard.
    pub(crate) fn granted<'a, T: ObservedHold + 'static>(
        mut self,
        lives: impl Iterator<Item = &'a Arc<T>> + Clone,
    ) -> Option<Holding> {
        self.end("granted");
        for live in lives.clone() {
            tracing::debug!(target: TARGET, parent: &self.span, hold = %live.hold().id, "granted");
        }
        Holding::begin(self.labels, self.gauges, lives)
    }

    pub(crate) fn refused(mut self, error: &LockError) {
        let outcome = outcome(error);
        self.end(outcome);
        // That a lock is in use, or a client ends, is no failure of the request.
        if !matches!(error, LockError::Busy { .. } | LockError::Shutdown) {
            database::failed(&self.span, outcome);
        }
        tracing::debug!(target: TARGET, parent: &self.span, outcome, "not granted");
        metrics::refused(&self.labels, error);
    }

    fn end(&mut self, outcome: &'static str) {
        self.has_ended = true;
        if !self.span.is_disabled() {
            self.span.record("outcome", outcome);
            self.span
                .record("waited_ms", self.began.elapsed().as_millis() as u64);
        }
        self.gauges.record_wait(self.began);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.has_ended {
            self.end("cancelled");
            tracing::debug!(target: TARGET, parent: &self.span, outcome = "cancelled", "not granted");
        }
    }
}
