use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{StatusCode, response};

use super::fingerprint::Fingerprint;
use super::identity::{Clients, Scope};
use super::local::LocalRecords;
use crate::client::LockClient;
use crate::layer::{Closure, Confirm, OnCancel, ServeSettings};
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
    /// In place of the default one.
    pub(super) fingerprint: Option<Closure<FingerprintOf>>,
    pub(super) retention: Duration,
    pub(super) record_if: Closure<IsFinal>,
    pub(super) response_limit: usize,
    pub(super) confirm: Confirm,
    pub(super) local: Arc<LocalRecords>,
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
                // A sender that hangs up must not cut a payment in half.
                on_cancel: OnCancel::RunToCompletion,
                ..ServeSettings::new(client, Duration::from_secs(3), 64)
            },
            required: false,
            scope: Scope::default(),
            fingerprint: None,
            retention: Duration::from_secs(24 * 60 * 60),
            record_if: Closure(Arc::new(|response| is_final(response.status))),
            response_limit: 64 * 1024,
            confirm: Confirm::Strict,
            local: Arc::default(),
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
        if matches!(self.scope.clients, Clients::Undecided) {
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
}

/// What a repeat cannot change: success, redirection, and the refusals 402 and 410. All others may succeed later, with the same key:
/// the token is refreshed, the resource created, the request corrected.
fn is_final(status: StatusCode) -> bool {
    status.is_success()
        || status.is_redirection()
        || matches!(status, StatusCode::PAYMENT_REQUIRED | StatusCode::GONE)
}
