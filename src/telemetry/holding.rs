use std::sync::Arc;

use smallvec::SmallVec;
use tokio::time::Instant;
use tracing::Span;
use tracing::field::Empty;

use super::database;
use super::{Labels, ObservedHold, TARGET, digests, metrics};
use crate::error::LockError;
use crate::sync::call_outside;

/// Observes the holds of a guard, from the grant until the release, confirmed or not. If it is dropped before, it reports
/// a drop.
pub(crate) struct Holding {
    labels: Labels,
    gauges: metrics::Gauges,
    granted: Instant,
    span: Span,
    /// The holds; most guards have one.
    lives: SmallVec<[Arc<dyn ObservedHold>; 1]>,
    outcome: Option<&'static str>,
    /// Whether the end is measured.
    is_counted: bool,
    /// Counts the guard as a holder.
    _holder: metrics::Counted,
}

impl Holding {
    /// `None` if neither metrics nor spans are on.
    pub(super) fn begin<'a, T: ObservedHold + 'static>(
        labels: Labels,
        gauges: metrics::Gauges,
        lives: impl Iterator<Item = &'a Arc<T>> + Clone,
    ) -> Option<Self> {
        let span = super::span(|| {
            tracing::debug_span!(
                target: TARGET,
                "lock_hold",
                key = %digests(|| lives.clone().map(|live| &live.hold().key)),
                mode = labels.1,
                outcome = Empty,
                held_ms = Empty,
                otel.kind = "internal",
                error.type = Empty,
                otel.status_code = Empty
            )
        });
        if !metrics::ENABLED && span.is_disabled() {
            return None;
        }
        let is_seen = !span.is_disabled();
        let lives = lives.filter(|_| is_seen);
        let lives = lives.map(|live| live.clone() as Arc<dyn ObservedHold>);
        let lives = lives.inspect(|live| span.id().iter().for_each(|id| live.enter(id)));
        Some(Self {
            _holder: gauges.holder(),
            labels,
            gauges,
            granted: Instant::now(),
            lives: lives.collect(),
            span,
            outcome: None,
            is_counted: true,
        })
    }

    /// Ends the observation of a lock under which no work was done: it is logged, and not measured.
    pub(crate) fn discard(mut self) {
        self.is_counted = false;
    }

    pub(crate) fn labels(&self) -> Labels {
        self.labels
    }

    /// The span of the work under the lock.
    pub(crate) fn span(&self) -> Span {
        self.span.clone()
    }

    /// The release begins. A caller that drops it does not see its end.
    pub(crate) fn begin_release(&mut self) {
        self.outcome = Some("unconfirmed");
    }

    pub(crate) fn released(mut self, released: &Result<(), LockError>) {
        self.outcome = Some(match released {
            Ok(()) => "confirmed",
            Err(LockError::Lost) => "lost",
            Err(_) => "unconfirmed",
        });
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        if self.is_counted {
            call_outside("a recorder", || self.gauges.record_hold(self.granted));
        }
        if self.span.is_disabled() {
            return;
        }
        let is_lost = || self.lives.iter().any(|live| live.is_lost());
        let ended = || if is_lost() { "lost" } else { "dropped" };
        let outcome = self.outcome.unwrap_or_else(ended);
        self.span.record("outcome", outcome);
        if matches!(outcome, "lost" | "unconfirmed") {
            database::failed(&self.span, outcome);
        }
        self.span
            .record("held_ms", self.granted.elapsed().as_millis() as u64);
        for live in &self.lives {
            tracing::debug!(target: TARGET, parent: &self.span, hold = %live.hold().id, outcome, "released");
        }
    }
}
