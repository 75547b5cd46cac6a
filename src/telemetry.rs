//! Observability: `tracing` spans and events, and metrics.
//!
//! # Spans and events
//!
//! | name | level | from … to | fields |
//! |---|---|---|---|
//! | span `lock_wait` | debug | the first poll of a request for locks … grant or refusal | `key`, `mode`, `outcome`, `waited_ms`; `otel.kind`, `db.system.name`, `db.operation.name`, `db.stored_procedure.name`, `server.address`, `server.port`, `error.type`, `otel.status_code` |
//! | span `lock_hold` | debug | grant … end of the guard; around the handler, where a layer holds the lock | `key`, `mode`, `outcome`, `held_ms`; `otel.kind`, `error.type`, `otel.status_code` |
//! | event `granted` | debug | | `hold` |
//! | event `not granted` | debug | | `outcome` |
//! | event `released` | debug | | `hold`, `outcome` |
//! | event `a lock was lost` | warn | one line a second | `key`, `mode`, `route`, `reason`, and `left_out`, the number of lines that were left out |
//!
//! Their target is `tower_distributed_lock::lock`, and events are in their span. A wait ends `granted`, `contended`,
//! `overloaded`, `unavailable`, `cancelled`, or otherwise refused; a guard ends `confirmed`, `unconfirmed`, `lost`, or `dropped`,
//! after which its release runs in the background.
//!
//! The names with a dot are those of OpenTelemetry's semantic conventions, or what `tracing-opentelemetry` reads. A wait is a
//! span of kind `client` if the store has a database ([`Capabilities::database`](crate::store::Capabilities::database)), and
//! names its server if there is one: not in a Cluster, behind sentinels, or in a quorum. Its operation is the command that asks, and
//! the stored procedure is named after the mode. A hold is a span of kind `internal`. A
//! wait that ends `overloaded`, `unavailable`, `conflict`, `lost` or `misused`, and a hold that ends `unconfirmed` or `lost`, is
//! marked as failed (`otel.status_code` is `ERROR`), and its outcome is its `error.type`. A wait for a lock that is in use is no
//! failure. A wait for a lock that this process holds follows from the holder's `lock_hold` (in OpenTelemetry: a link to its trace);
//! of a holder in another process, `lockctl show` and the console tell. The route is that of the span around, such as that of `tower_http::trace`.
//!
//! While a partition of the store does not answer renewals, one batch of them probes it, every 100 ms at first and every second
//! later. This is logged as one outage: `could not renew` (warn) when it begins and once a minute, `renewals are answered again`
//! (info) when it is over.
//!
//! The field `key` is a digest, the first eight hexadecimal digits of the name's SHA-256. It distinguishes locks in the logs of
//! every process, and keeps input of clients, such as paths, out of the logs. It is not secret: a reader who guesses the name can
//! check the guess, so keep secrets out of names. The names themselves are logged at trace only, and the ids of holds at debug
//! only.
//!
//! A layer logs a request that it does not serve as `a request was not served`: at error if the program must be changed or the record
//! of an idempotency key cannot be read, at warn if the store failed, otherwise at debug. One whose lock was lost, or whose release was
//! not confirmed, even at the end of its response's body, is logged as `a request has an unknown outcome`, at warn. Of each
//! [`RejectionKind`](crate::RejectionKind), and of each text of [`Misconfigured`](crate::RejectionKind::Misconfigured), one line a
//! minute is at error or warn; its field `left_out` counts the lines that were at debug since the last one.
//!
//! # Metrics
//!
//! With the feature `metrics`, for the recorder that the program installs for the [`metrics`](https://docs.rs/metrics) crate:
//!
//! | name | type | unit | labels | |
//! |---|---|---|---|---|
//! | `distributed_lock_wait_duration_seconds` | histogram | seconds | `route`, `mode` | how long requests waited, however that ended |
//! | `distributed_lock_hold_duration_seconds` | histogram | seconds | `route`, `mode` | how long guards lived, their confirmed release included |
//! | `distributed_lock_waiters` | gauge | | `route`, `mode` | requests that wait just now |
//! | `distributed_lock_holders` | gauge | | `route`, `mode` | guards that hold just now, until they are released or dropped |
//! | `distributed_lock_handovers_total` | counter | | `route`, `mode` | locks that a request got from the one before it in this process, without the store |
//! | `distributed_lock_contended_total` | counter | | `route`, `mode` | waits that ended while another owner held the lock |
//! | `distributed_lock_overloaded_total` | counter | | `route`, `mode` | requests refused because too many waited already |
//! | `distributed_lock_unavailable_total` | counter | | `route`, `mode` | requests refused because the store could not be asked |
//! | `distributed_lock_confirmed_total` | counter | | `route`, `mode`, `by` | responses of layers that were sent under a lock: confirmed by the `store`, or by the `lease` alone ([`ConfirmedBy`](crate::layer::ConfirmedBy)) |
//! | `distributed_lock_lost_total` | counter | | `route`, `mode`, `reason` | locks lost while they were held |
//! | `distributed_lock_renewals_total` | counter | | `route`, `mode`, `outcome` | renewals: `renewed`, `lost`, or `failed`, which are tried again |
//! | `distributed_lock_renewal_lag_seconds` | histogram | seconds | `route`, `mode` | how long after it was due, a third into the lease, a renewal was confirmed |
//! | `distributed_lock_idempotent_requests_total` | counter | | `route`, `outcome` | requests with an idempotency key: `executed`, `replayed`, or `refused` |
//! | `distributed_lock_idempotent_responses_total` | counter | | `route`, `outcome` | responses of executed requests: `recorded`, `not_recorded`, or `unknown` where the store did not confirm the record |
//! | `distributed_lock_audit_warnings` | gauge | | `warning` | warnings of the latest audit, by [`kind`](crate::audit::Warning); 0 for the kinds that it did not find |
//! | `distributed_lock_failovers_total` | counter | | `deployment` | failovers of Redis that this process has seen: the sentinels (`sentinel`) named another master, or slots of a Cluster (`cluster`) went to another server |
//! | `distributed_lock_clock_offset_seconds` | gauge | seconds | `server` | how far the clock of a server of Redis is ahead of this process's, at the latest audit; the server is named by its address |
//! | `distributed_lock_store_answer_duration_seconds` | histogram | seconds | `carries` | how long Redis took to answer a command |
//! | `distributed_lock_store_unanswered_total` | counter | | `carries` | commands that Redis did not answer |
//! | `distributed_lock_store_connections` | gauge | | `carries` | connections to Redis that are up |
//! | `distributed_lock_store_connected_total` | counter | | `carries` | connections to Redis that were opened, the first ones included |
//! | `distributed_lock_store_connect_failures_total` | counter | | `carries` | tries to connect to Redis that failed, and addresses for subscriptions where nothing is heard |
//!
//! `reason` is `gone` (the store did not carry the hold, such as after a failover or a break), `not_renewed` (its lease was over
//! before it was renewed), `lease_over` (a lease that is not renewed), `max_hold`, or `shutdown`. `carries` is `commands`,
//! `renewals` or `wake-ups`: what the connection is for. `route` is the template that axum has matched, such as `/orders/{id}`, the
//! [`label`](crate::LockRequest::label) of a request to the client, or `none`; `mode` is the [`LockMode`](crate::LockMode) in lower
//! case, or `mixed` where several keys are taken in different ones. No label contains input of a client, so the number of series
//! depends on the number of routes. A lock that several requests share is lost and renewed under the route of the one that it was granted to.
//!
//! The audit's metrics are those of the latest [`LockClient::audit`](crate::LockClient::audit) or
//! [`LockAdmin::audit`](crate::LockAdmin::audit) of the process: a service that is to be alarmed by them audits its store every
//! minute.
//!
//! A lag near two thirds of the lease means that locks are about to be lost: the store is slow, or the program's threads are
//! blocked.

use std::fmt::{self, Write};

use sha2::{Digest, Sha256};
use tracing::level_filters::LevelFilter;
use tracing::{Span, span};

use crate::error::LockError;
use crate::lock::{Hold, LockKey, hex};
use crate::sync::call_outside;

#[cfg(feature = "redis")]
mod connection_use;
mod database;
mod events;
mod holding;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(not(feature = "metrics"))]
#[path = "telemetry/no_metrics.rs"]
mod metrics;
mod route;
mod seldom;
#[cfg(feature = "redis")]
pub(crate) mod store;
mod waiting;

pub(crate) use database::Database;
pub(crate) use events::Events;
pub use events::{LockEvent, LockEventKind, LockEvents};
pub(crate) use holding::Holding;
pub(crate) use metrics::{
    audited, confirmed, describe, handed_over, idempotent_request, idempotent_response,
    not_renewed, renewed,
};
pub(crate) use route::Route;
pub(crate) use seldom::{Seldom, SeldomByText};
pub(crate) use waiting::Waiting;

const TARGET: &str = "tower_distributed_lock::lock";

/// The span that `made` makes, if any subscriber takes such spans: one that is off costs more than this question.
fn span(made: impl FnOnce() -> Span) -> Span {
    match LevelFilter::current() >= LevelFilter::DEBUG {
        true => made(),
        false => Span::none(),
    }
}

/// The route and the mode of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Labels(pub(crate) Route, pub(crate) &'static str);

/// The part of a hold that telemetry reads.
pub(crate) trait ObservedHold: Send + Sync {
    fn hold(&self) -> &Hold;
    fn is_lost(&self) -> bool;
    /// A guard that holds it has this span.
    fn enter(&self, span: &span::Id);
}

/// Reports a hold that is lost while a guard has a share in it.
///
/// After a pause of the process, or an outage, there may be very many: one line a second is logged.
pub(crate) fn lost(
    events: &Events,
    losses: &Seldom,
    route: &Route,
    hold: &Hold,
    reason: &'static str,
) {
    let mode = hold.mode.as_str();
    let name = route.template().unwrap_or("none");
    if let Some(left_out) = losses.due() {
        let key = digests(|| [&hold.key]);
        call_outside("a subscriber", || {
            tracing::warn!(target: TARGET, %key, mode, route = name, reason, left_out, "a lock was lost");
        });
    }
    call_outside("a recorder", || metrics::lost(route, mode, reason));
    let told = LockEventKind::Lost { reason };
    events.tell(&hold.key, Some(hold.mode), route, || told);
}

/// The short name of a refusal, as the spans of waits have it.
pub(crate) fn outcome(error: &LockError) -> &'static str {
    match error {
        LockError::Busy { .. } => "contended",
        LockError::Overloaded => "overloaded",
        LockError::Unavailable(_) => "unavailable",
        LockError::Conflict(_) => "conflict",
        LockError::Lost => "lost",
        LockError::Unconfirmed(_) => "unconfirmed",
        LockError::Shutdown => "shutdown",
        LockError::Upgrade | LockError::Unsupported(_) | LockError::Invalid(_) => "misused",
    }
}

/// The digests of names, computed when they are formatted: with the feature `log`, the macros of `tracing` evaluate their fields
/// even for events that are off.
struct Digests<F>(F);

/// The digests of the keys that `keys` yields, for logs.
pub(crate) fn digests<'a, K>(keys: impl Fn() -> K) -> impl fmt::Display
where
    K: IntoIterator<Item = &'a LockKey>,
{
    Digests(move |f: &mut fmt::Formatter<'_>| {
        for (place, key) in keys().into_iter().enumerate() {
            if place > 0 {
                f.write_str(",")?;
            }
            hex(&Sha256::digest(key.as_str())[..4]).try_for_each(|digit| f.write_char(digit))?;
        }
        Ok(())
    })
}

impl<F: Fn(&mut fmt::Formatter<'_>) -> fmt::Result> fmt::Display for Digests<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0(f)
    }
}

/// The digest by which logs name a key: the first eight hexadecimal digits of the SHA-256 of its name in the store.
///
/// ```
/// use tower_distributed_lock::{LockKey, telemetry};
///
/// let key = LockKey::new("invoice:7");
/// assert_eq!(telemetry::digest(&key).to_string().len(), 8);
/// ```
pub fn digest(key: &LockKey) -> impl fmt::Display + '_ {
    digests(move || [key])
}
