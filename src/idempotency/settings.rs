use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{StatusCode, response};

use super::identity::{Fingerprint, Scope};
use crate::client::LockClient;
use crate::layer::{Closure, Confirm, Rejection, ServeSettings};
use crate::limits;
use crate::lock::LockMode;
use crate::telemetry::Seldom;

type IsFinal = dyn Fn(&response::Parts) -> bool + Send + Sync;
type FingerprintOf = dyn Fn(&Parts, &[u8]) -> Fingerprint + Send + Sync;

/// Every setting of a layer that is not a type parameter.
#[derive(Debug, Clone)]
pub(super) struct IdempotencySettings {
    pub(super) serve: ServeSettings,
    pub(super) required: bool,
    pub(super) scope: Scope,
    pub(super) fingerprint: Closure<FingerprintOf>,
    pub(super) retention: Duration,
    pub(super) record_if: Closure<IsFinal>,
    pub(super) record_cookies: bool,
    pub(super) response_limit: usize,
    pub(super) confirm: Confirm,
    /// When a response that cannot be recorded was last logged as a warning.
    pub(super) warned: Arc<Seldom>,
    /// When a record that cannot be read was last logged.
    pub(super) unreadable: Arc<Seldom>,
}

impl IdempotencySettings {
    pub(super) fn new(client: LockClient) -> Self {
        Self {
            serve: ServeSettings {
                // The record of the first request answers those that wait for it.
                waiters_take_turns: false,
                ..ServeSettings::new(client, Duration::from_secs(3), 64)
            },
            required: false,
            scope: Scope::Undecided,
            fingerprint: Closure(Arc::new(Fingerprint::of)),
            retention: Duration::from_secs(24 * 60 * 60),
            record_if: Closure(Arc::new(|response| is_final(response.status))),
            record_cookies: false,
            response_limit: 64 * 1024,
            confirm: Confirm::Strict,
            warned: Arc::default(),
            unreadable: Arc::default(),
        }
    }

    /// Checks the settings; the error names what is wrong.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        if !self.serve.client.keeps_records() {
            return Err(
                "the lock client's store keeps no records: make the client of a `MemoryStore` or a `RedisStore`",
            );
        }
        if matches!(self.scope, Scope::Undecided) {
            return Err(
                "it does not know whose idempotency keys it serves: call `tenant` with what identifies the client \
                 after authentication, or `shared` where all clients are one, such as the sender of signed webhooks",
            );
        }
        if self.confirm == Confirm::Deadline {
            return Err(
                "`Confirm::Deadline` does not wait for the record to be stored: choose `Strict` or `Store`",
            );
        }
        self.serve.check()?;
        if self.retention < limits::bounded(self.serve.lease).duration() {
            return Err(
                "a record must outlive the claim: choose a `retention` of at least the lease",
            );
        }
        let supported = self.serve.client.supports(LockMode::Reentrant, false);
        supported.map_err(|unsupported| unsupported.reason())
    }

    /// Whether a response is the handler's, and final. A connection that switches protocols cannot be replayed.
    pub(super) fn is_final(&self, response: &response::Parts) -> bool {
        response.extensions.get::<Rejection>().is_none()
            && !response.status.is_informational()
            && (self.record_if)(response)
    }
}

/// Success, redirection, and refusals that a repeat would get as well. The same key may come with a corrected request
/// (400, 413, 415, 422) or with a retry (408, 409, 423, 425, 429).
fn is_final(status: StatusCode) -> bool {
    let may_change = matches!(
        status.as_u16(),
        400 | 408 | 409 | 413 | 415 | 422 | 423 | 425 | 429
    );
    (status.is_success() || status.is_redirection() || status.is_client_error()) && !may_change
}
