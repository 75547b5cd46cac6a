use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{StatusCode, response};

use super::fingerprint::Fingerprint;
use super::key::idempotency_key;
use super::local::LocalRecords;
use crate::client::LockClient;
use crate::key::AnyKey;
use crate::layer::{OnCancel, OnMissing, ServeSettings};
use crate::limits::{self, FOR_EVER};
use crate::lock::LockMode;
use crate::telemetry::Seldom;

type IsFinal = dyn Fn(&response::Parts) -> bool + Send + Sync;
type FingerprintOf = dyn Fn(&Parts, &[u8]) -> Fingerprint + Send + Sync;

/// Every setting of a layer.
#[derive(Clone)]
pub(super) struct IdempotencySettings {
    pub(super) serve: ServeSettings,
    pub(super) key: AnyKey,
    pub(super) on_missing: OnMissing,
    /// In place of the default one.
    pub(super) fingerprint: Option<Arc<FingerprintOf>>,
    pub(super) retention: Duration,
    pub(super) record_if: Arc<IsFinal>,
    pub(super) response_limit: usize,
    pub(super) local: Arc<LocalRecords>,
    /// When a response that cannot be recorded was last logged as a warning.
    pub(super) warned: Arc<Seldom>,
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
            key: AnyKey::new(idempotency_key()),
            on_missing: OnMissing::Skip,
            fingerprint: None,
            retention: Duration::from_secs(24 * 60 * 60),
            record_if: Arc::new(|response| is_final(response.status)),
            response_limit: 64 * 1024,
            local: Arc::default(),
            warned: Arc::default(),
        }
    }

    /// Checks that the store can keep records; the error names what is wrong.
    pub(super) fn check_store(client: &LockClient) -> Result<(), &'static str> {
        if !client.keeps_records() {
            return Err(
                "the lock client's store keeps no records: use one that does, such as `RedisStore`",
            );
        }
        let supported = client.supports(LockMode::Reentrant, false);
        supported.map_err(|unsupported| unsupported.reason())
    }

    /// How long a record is kept: never less than the claim may last without its process.
    pub(super) fn retention(&self) -> Duration {
        let lease = limits::bounded(self.serve.lease).duration();
        self.retention.clamp(lease, FOR_EVER)
    }
}

/// What a repeat cannot change: success, redirection, and the refusals 402 and 410. All others may succeed later, with the same key:
/// the token is refreshed, the resource created, the request corrected.
fn is_final(status: StatusCode) -> bool {
    status.is_success()
        || status.is_redirection()
        || matches!(status, StatusCode::PAYMENT_REQUIRED | StatusCode::GONE)
}
