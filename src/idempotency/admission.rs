//! From the head of a request to its claim.

use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use http_body::Body;
use tokio::time::timeout;

use super::IdempotencyLayer;
use super::fingerprint::Fingerprint;
use super::record::Recorded;
use super::scope;
use crate::error::{LockError, StoreError, StoreErrorKind};
use crate::guard::LockGuard;
use crate::key::{KeyError, KeyExtractor, Keys, RequestBody, template};
use crate::layer::{BodyReader, ModePolicy, Refusal, Rejection, RejectionKind, by_method};
use crate::lock::{LockKey, LockMode};
use crate::telemetry::Route;

/// How long the store may take to look a record up.
const LOOK_UP: Duration = Duration::from_secs(2);

/// What is to be done with a request.
pub(super) enum Admission<B> {
    /// It has no key: nothing is promised.
    Pass(B),
    /// It was served before.
    Replay(Response<Bytes>),
    /// It is to be served.
    Run(B, Claim),
}

/// The right to serve a request, until it is recorded.
pub(super) struct Claim {
    pub(super) guard: LockGuard,
    pub(super) fingerprint: Fingerprint,
}

/// In the extensions of requests that a layer serves under these names.
#[derive(Clone, Default)]
struct Claimed(Vec<LockKey>);

impl<K: KeyExtractor> IdempotencyLayer<K> {
    /// Whether a request is one that the layer looks at.
    pub(super) fn concerns(&self, parts: &Parts) -> bool {
        by_method().mode(parts) == Some(LockMode::Write)
    }

    pub(super) async fn admit<B>(&self, parts: &mut Parts, body: B) -> Result<Admission<B>, Refusal>
    where
        B: Body<Data: Send> + From<Bytes> + Send,
    {
        let (found, body) = self.find(parts, body).await?;
        let keys = match found {
            Ok(keys) => keys,
            Err(missing) if self.policy.required => return Err(missing.into()),
            Err(_) => return Ok(Admission::Pass(body.into_body())),
        };
        let body = body.read(self.policy.body_limit).await?;
        let tenant = (self.policy.tenant)(parts);
        let name = scope::name(parts, tenant.as_deref(), keys);
        let claimed = parts.extensions.get_or_insert_default::<Claimed>();
        if claimed.0.contains(&name) {
            // A layer further out is at it: waiting for its lock would be waiting for ourselves.
            return Ok(Admission::Pass(body.into()));
        }
        claimed.0.push(name.clone());
        let fingerprint = Fingerprint::of(parts, &body);
        let guard = self.claim(&name, Route::new(template(parts))).await?;
        match self.recorded(&name).await? {
            None => Ok(Admission::Run(body.into(), Claim { guard, fingerprint })),
            Some(recorded) if recorded.fingerprint == fingerprint => {
                Ok(Admission::Replay(recorded.replay()))
            }
            Some(_) => Err(Rejection::new(RejectionKind::KeyReused).into()),
        }
    }

    /// The key, if there is one, and what is to be read of the body yet.
    async fn find<B>(
        &self,
        parts: &mut Parts,
        body: B,
    ) -> Result<(Result<Keys, KeyError>, Payload<B>), Refusal>
    where
        B: Body<Data: Send> + Send,
    {
        // What a layer further out has read may be another body than ours.
        parts.extensions.remove::<RequestBody>();
        let mut body = Payload::Unread(body);
        let mut found = self.key.extract(parts).await;
        if found.as_ref().is_err_and(KeyError::is_body_unread) {
            let read = body.read(self.policy.body_limit).await?;
            parts.extensions.insert(RequestBody(read.clone()));
            body = Payload::Read(read);
            found = self.key.extract(parts).await;
        }
        match found {
            Ok(keys) if keys.is_empty() => {
                let reason = "this request needs an idempotency key";
                Ok((Err(KeyError::missing_because(reason)), body))
            }
            Ok(keys) => Ok((Ok(keys), body)),
            Err(error) if error.is_missing() => Ok((Err(error), body)),
            Err(error) => Err(error.into()),
        }
    }

    async fn claim(&self, name: &LockKey, route: Route) -> Result<LockGuard, Rejection> {
        let policy = &self.policy;
        let mut request = self
            .client
            .lock(name)
            .wait(policy.wait)
            .lease(policy.lease)
            .max_waiters(policy.max_waiters)
            .route(route);
        if let Some(max_hold) = policy.max_hold {
            request = request.max_hold(max_hold);
        }
        request.acquire().await.map_err(|error| {
            let busy = matches!(error, LockError::Busy { .. });
            match (busy, Rejection::from(error)) {
                (true, rejection) => rejection.with_kind(RejectionKind::InProgress),
                (false, rejection) => rejection,
            }
        })
    }

    /// What was recorded under a name whose lock is held: nobody records meanwhile.
    async fn recorded(&self, name: &LockKey) -> Result<Option<Recorded>, Rejection> {
        let record = timeout(LOOK_UP, self.client.record(name)).await;
        let record = record.unwrap_or_else(|elapsed| {
            Err(StoreError::new(StoreErrorKind::Unanswered, elapsed).into())
        })?;
        let recorded = record.as_ref().map(Recorded::decode).transpose();
        recorded.map_err(|error| {
            tracing::error!(%error, "the record of a request cannot be read");
            Rejection::new(RejectionKind::RecordUnreadable)
        })
    }
}

/// A request's body, read or not.
enum Payload<B> {
    Unread(B),
    Read(Bytes),
}

impl<B: Body> Payload<B> {
    async fn read(self, limit: usize) -> Result<Bytes, Rejection> {
        match self {
            Self::Unread(body) => {
                let read = BodyReader::new(limit).read(body).await;
                read.map_err(Rejection::new)
            }
            Self::Read(body) => Ok(body),
        }
    }
}

impl<B: From<Bytes>> Payload<B> {
    fn into_body(self) -> B {
        match self {
            Self::Unread(body) => body,
            Self::Read(body) => body.into(),
        }
    }
}
