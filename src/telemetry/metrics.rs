//! The instruments. Each function has a counterpart in `no_metrics.rs` that does nothing, and each metric a line in the
//! table of the module above.

use std::collections::{BTreeSet, HashMap};
use std::sync::{LazyLock, PoisonError, RwLock};
use std::time::Duration;

use metrics::{
    Gauge, Key, Label, Level, Metadata, SharedString, counter, gauge, histogram, with_recorder,
};
use tokio::time::Instant;

use super::{Labels, Route};
use crate::audit::{Audit, Warning};
use crate::error::LockError;
use crate::lock::LockMode;
use crate::sync::call_outside;

/// Declares the name of each metric, and a function that describes them to the recorder. A duration is in seconds, as its name
/// says.
macro_rules! described {
    ($($describe:ident $name:ident = $metric:literal: $text:literal;)+) => {
        $(const $name: &str = $metric;)+

        /// Describes the metrics of this file.
        pub(super) fn describe_each() {
            let unit = |name: &str| name.ends_with("_seconds").then_some(metrics::Unit::Seconds);
            metrics::with_recorder(|recorder| {
                $(recorder.$describe($name.into(), unit($name), $text.into());)+
            });
        }
    };
}

#[cfg(feature = "redis")]
pub(super) mod store;

/// Whether anything is measured.
pub(super) const ENABLED: bool = true;

described! {
    describe_histogram WAITED = "distributed_lock_wait_duration_seconds": "How long requests waited for their locks.";
    describe_histogram HELD = "distributed_lock_hold_duration_seconds": "How long locks were held.";
    describe_gauge WAITERS = "distributed_lock_waiters": "Requests that wait for their locks just now.";
    describe_gauge HOLDERS = "distributed_lock_holders": "Guards that hold locks just now.";
    describe_counter HANDOVERS = "distributed_lock_handovers_total":
        "Locks that a request got from the one before it in the process.";
    describe_counter CONTENDED = "distributed_lock_contended_total":
        "Waits that ended while another owner held the lock.";
    describe_counter OVERLOADED = "distributed_lock_overloaded_total": "Requests refused because too many waited.";
    describe_counter UNAVAILABLE = "distributed_lock_unavailable_total": "Requests refused for want of the lock store.";
    describe_counter CONFIRMED = "distributed_lock_confirmed_total": "Responses that were sent under a lock.";
    describe_counter LOST = "distributed_lock_lost_total": "Locks lost while they were held.";
    describe_counter RENEWALS = "distributed_lock_renewals_total": "Renewals of locks that are held.";
    describe_histogram RENEWAL_LAG = "distributed_lock_renewal_lag_seconds":
        "How long after they were due renewals were confirmed.";
    describe_gauge AUDIT_WARNINGS = "distributed_lock_audit_warnings": "Warnings of the latest audit.";
    describe_counter IDEMPOTENT_REQUESTS = "distributed_lock_idempotent_requests_total":
        "Requests with an idempotency key.";
    describe_counter IDEMPOTENT_RESPONSES = "distributed_lock_idempotent_responses_total":
        "Responses to idempotent requests that ran.";
}

/// Describes the metrics to the recorder. A recorder that is installed later lacks only the descriptions.
pub(crate) fn describe() {
    #[cfg(feature = "redis")]
    store::describe_each();
    describe_each();
}

fn label(route: &Route) -> SharedString {
    SharedString::const_str(route.template().unwrap_or("none"))
}

/// The metrics that every request updates, of one route and mode.
///
/// Their names and labels are composed once for each route and mode, and never dropped: there are as many as the program has
/// routes. The handles are not kept, because a recorder may be installed, or replaced, later.
#[derive(Clone, Copy)]
pub(super) struct Gauges(&'static GaugeKeys);

struct GaugeKeys {
    waiters: Key,
    holders: Key,
    waited: Key,
    held: Key,
}

impl Gauges {
    pub(super) fn of(of: &Labels) -> Self {
        type All = HashMap<Labels, &'static GaugeKeys>;
        // Protects the map, whose entries are only added.
        static ALL: LazyLock<RwLock<All>> = LazyLock::new(RwLock::default);
        let all = ALL.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(keys) = all.get(of) {
            return Self(keys);
        }
        drop(all);
        let labelled = |name: &'static str| {
            let labels = vec![
                Label::new("route", label(&of.0)),
                Label::from_static_parts("mode", of.1),
            ];
            Key::from_parts(name, labels)
        };
        let mut all = ALL.write().unwrap_or_else(PoisonError::into_inner);
        Self(all.entry(*of).or_insert_with(|| {
            Box::leak(Box::new(GaugeKeys {
                waiters: labelled(WAITERS),
                holders: labelled(HOLDERS),
                waited: labelled(WAITED),
                held: labelled(HELD),
            }))
        }))
    }

    /// Counts a waiting request.
    pub(super) fn waiter(self) -> Counted {
        count(&self.0.waiters)
    }

    /// Counts a guard.
    pub(super) fn holder(self) -> Counted {
        count(&self.0.holders)
    }

    pub(super) fn record_wait(self, since: Instant) {
        record(&self.0.waited, since.elapsed());
    }

    pub(super) fn record_hold(self, since: Instant) {
        record(&self.0.held, since.elapsed());
    }
}

static METADATA: Metadata<'static> =
    Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

/// Counts one in a gauge while this exists.
pub(crate) struct Counted(Gauge);

impl Counted {
    fn new(gauge: Gauge) -> Self {
        gauge.increment(1);
        Self(gauge)
    }
}

fn count(key: &Key) -> Counted {
    Counted::new(with_recorder(|recorder| {
        recorder.register_gauge(key, &METADATA)
    }))
}

impl Drop for Counted {
    fn drop(&mut self) {
        call_outside("a recorder", || self.0.decrement(1));
    }
}

fn record(key: &Key, time: Duration) {
    with_recorder(|recorder| recorder.register_histogram(key, &METADATA)).record(time);
}

pub(super) fn refused(Labels(route, mode): &Labels, error: &LockError) {
    let name = match error {
        LockError::Busy { .. } => CONTENDED,
        LockError::Overloaded => OVERLOADED,
        LockError::Unavailable(_) => UNAVAILABLE,
        _ => return,
    };
    counter!(name, "route" => label(route), "mode" => *mode).increment(1);
}

/// Reports the confirmation of a response: by the `store`, or by the `lease` alone.
pub(crate) fn confirmed(Labels(route, mode): &Labels, by: &'static str) {
    counter!(CONFIRMED, "route" => label(route), "mode" => *mode, "by" => by).increment(1);
}

pub(super) fn lost(route: &Route, mode: &'static str, reason: &'static str) {
    counter!(LOST, "route" => label(route), "mode" => mode, "reason" => reason).increment(1);
}

/// Reports a hold that was passed to the next request of the process.
pub(crate) fn handed_over(route: &Route, mode: LockMode) {
    counter!(HANDOVERS, "route" => label(route), "mode" => mode.as_str()).increment(1);
}

/// Reports the number of warnings of each kind, also of the kinds that the audit did not find.
pub(crate) fn audited(audit: &Audit) {
    let warnings = audit.every_warning();
    let found = warnings.iter().map(|warning| warning.kind);
    for kind in BTreeSet::from_iter(Warning::kinds().chain(found)) {
        let count = warnings.iter().filter(|warning| warning.kind == kind);
        gauge!(AUDIT_WARNINGS, "warning" => kind).set(count.count() as f64);
    }
}

/// Reports a renewal that the store confirmed, and how long after it was due.
pub(crate) fn renewed(route: &Route, mode: LockMode, lag: impl FnOnce() -> Duration) {
    renewal(route, mode, "renewed");
    call_outside("a recorder", || {
        histogram!(RENEWAL_LAG, "route" => label(route), "mode" => mode.as_str()).record(lag());
    });
}

/// Reports a renewal that found no hold (`lost`), or had no answer (`failed`).
pub(crate) fn not_renewed(route: &Route, mode: LockMode, outcome: &'static str) {
    renewal(route, mode, outcome);
}

fn renewal(route: &Route, mode: LockMode, outcome: &'static str) {
    let mode = mode.as_str();
    // A recorder that panics does not end the renewals.
    call_outside("a recorder", || {
        counter!(RENEWALS, "route" => label(route), "mode" => mode, "outcome" => outcome)
            .increment(1);
    });
}

/// Counts a request with an idempotency key: `executed`, `replayed` or `refused`.
pub(crate) fn idempotent_request(route: &Route, outcome: &'static str) {
    counter!(IDEMPOTENT_REQUESTS, "route" => label(route), "outcome" => outcome).increment(1);
}

/// Counts the response of a request that was executed: `recorded`, `not_recorded`, or `unknown` where the store has not
/// confirmed the record.
pub(crate) fn idempotent_response(route: &Route, outcome: &'static str) {
    counter!(IDEMPOTENT_RESPONSES, "route" => label(route), "outcome" => outcome).increment(1);
}
