use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{StatusCode, response};

use crate::client::LockClient;
use crate::layer::{Confirm, LONGEST, OnCancel, Rejection, Responder, SHORTEST};
use crate::lock::{Lease, LockMode};

type Tenant = dyn Fn(&Parts) -> Option<String> + Send + Sync;
type IsFinal = dyn Fn(&response::Parts) -> bool + Send + Sync;

/// Every setting of a layer that is not a type parameter.
#[derive(Clone)]
pub(super) struct Policy {
    pub(super) required: bool,
    pub(super) tenant: Arc<Tenant>,
    pub(super) wait: Duration,
    pub(super) lease: Lease,
    pub(super) max_hold: Option<Duration>,
    pub(super) max_waiters: usize,
    pub(super) retention: Duration,
    pub(super) store_if: Arc<IsFinal>,
    pub(super) body_limit: usize,
    pub(super) response_limit: usize,
    pub(super) on_cancel: OnCancel,
    pub(super) confirm: Confirm,
    pub(super) responder: Responder,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            required: false,
            tenant: Arc::new(|_| None),
            wait: Duration::from_secs(3),
            lease: Lease::default(),
            max_hold: Some(Duration::from_secs(300)),
            max_waiters: 64,
            retention: Duration::from_secs(24 * 60 * 60),
            store_if: Arc::new(|response| is_final(response.status)),
            body_limit: 2 * 1024 * 1024,
            response_limit: 1024 * 1024,
            on_cancel: OnCancel::default(),
            confirm: Confirm::default(),
            responder: Responder::default(),
        }
    }
}

impl Policy {
    /// Why no request could be served so, or not as it was meant.
    pub(super) fn check(&self, client: &LockClient) -> Result<(), &'static str> {
        if !client.keeps_records() {
            return Err(
                "the lock client's store keeps no records: make the client of a `MemoryStore` or a `RedisStore`",
            );
        }
        if self.confirm == Confirm::Deadline {
            return Err(
                "`Confirm::Deadline` does not wait for the record to be stored: choose `Store` or `Strict`",
            );
        }
        let times = SHORTEST..=LONGEST;
        if !times.contains(&self.lease.duration()) {
            return Err("the claim cannot be held: choose a `lease` from 10 ms to a year");
        }
        if self.max_hold.is_some_and(|hold| !times.contains(&hold)) {
            return Err("the claim cannot be kept: choose a `max_hold` from 10 ms to a year");
        }
        if self.wait > LONGEST {
            return Err("the `wait` must be finite: choose a year at most");
        }
        if !(self.lease.duration()..=LONGEST).contains(&self.retention) {
            return Err(
                "a record must outlive the claim: choose a `retention` from the lease to a year",
            );
        }
        client.supports(LockMode::Reentrant, false)
    }

    /// Whether a response is an answer for good, and the handler's.
    pub(super) fn stores(&self, response: &response::Parts) -> bool {
        response.extensions.get::<Rejection>().is_none() && (self.store_if)(response)
    }
}

/// Success, and refusals that a repeat would only meet again.
fn is_final(status: StatusCode) -> bool {
    let invites_a_repeat = matches!(status.as_u16(), 408 | 409 | 423 | 425 | 429);
    (status.is_success() || status.is_redirection() || status.is_client_error())
        && !invites_a_repeat
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("required", &self.required)
            .field("wait", &self.wait)
            .field("lease", &self.lease)
            .field("max_hold", &self.max_hold)
            .field("max_waiters", &self.max_waiters)
            .field("retention", &self.retention)
            .field("body_limit", &self.body_limit)
            .field("response_limit", &self.response_limit)
            .field("on_cancel", &self.on_cancel)
            .field("confirm", &self.confirm)
            .finish_non_exhaustive()
    }
}
