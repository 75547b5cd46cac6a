//! The admission of a request: from its head to the lock of its key.

use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use http_body::Body;
use tokio::time::timeout;

use super::IdempotencyLayer;
use super::fingerprint::{Fingerprint, Version};
use super::record::Recorded;
use crate::error::{LockError, StoreError, StoreErrorKind};
use crate::guard::LockGuard;
use crate::key::{KeyError, KeyExtractor, Keys, RequestBody, template};
use crate::layer::{
    Admission, BodyReader, Claim, ModePolicy, Refusal, Rejection, RejectionKind, by_method,
};
use crate::lock::{LockKey, LockMode};
use crate::telemetry::Route;

/// How long the store may take to read a record.
const LOOK_UP: Duration = Duration::from_secs(2);

/// The data for the record of a request.
pub(crate) struct RecordTerms {
    pub(super) fingerprint: Fingerprint,
    pub(super) route: Route,
}

/// The name and the fingerprint of a request's record.
struct Identity<'a> {
    name: LockKey,
    parts: &'a Parts,
    body: &'a Bytes,
    fingerprint: Fingerprint,
}

/// The names that layers further out have claimed for a request. In its extensions.
#[derive(Clone, Default)]
struct Claimed(Vec<LockKey>);

impl<K: KeyExtractor> IdempotencyLayer<K> {
    /// Whether the layer applies to a request with this head: one that writes.
    pub(super) fn applies_to(&self, parts: &Parts) -> bool {
        by_method().mode(parts) == Some(LockMode::Write)
            && self.settings.when.of(parts) != Some(false)
    }

    /// Answers a repeat, or claims the key of a request.
    pub(super) async fn replay_or_claim<B>(
        &self,
        parts: &mut Parts,
        body: B,
    ) -> Result<Admission<B, RecordTerms>, Refusal>
    where
        B: Body<Data: Send> + From<Bytes> + Send,
    {
        let (extracted, body) = self.extract_key(parts, body).await?;
        let keys = match extracted {
            Ok(keys) => keys,
            Err(missing) if self.settings.required => return Err(missing.into()),
            // Without a key there is no promise.
            Err(_) => return Ok(Admission::Pass(body.into_body())),
        };
        let body = body.read(&self.settings.body_reader).await?;
        let name = self.client.named(self.settings.scope.name(parts, keys));
        let claimed = parts.extensions.get_or_insert_default::<Claimed>();
        if claimed.0.contains(&name) {
            // A layer further out holds the lock of this name for this request, which would wait for itself.
            return Ok(Admission::Pass(body.into()));
        }
        claimed.0.push(name.clone());
        let identity = Identity {
            name,
            fingerprint: (self.settings.fingerprint)(parts, &body),
            parts,
            body: &body,
        };
        // A record does not change during its retention, so a replay needs no lock.
        if let Some(replay) = self.look_up(&identity).await? {
            return Ok(Admission::Answer(replay));
        }
        let guard = self.claim(&identity).await?;
        // The response may have been recorded between the read and the grant. From here no other request records.
        if let Some(replay) = self.look_up(&identity).await? {
            guard.discard();
            return Ok(Admission::Answer(replay));
        }
        let terms = RecordTerms {
            fingerprint: identity.fingerprint,
            route: route(parts),
        };
        Ok(Admission::Run(body.into(), Claim { guard, terms }))
    }

    /// The key, or why there is none, and the body, which is read only if the key is in it.
    async fn extract_key<B>(
        &self,
        parts: &mut Parts,
        body: B,
    ) -> Result<(Result<Keys, KeyError>, TakenBody<B>), Refusal>
    where
        B: Body<Data: Send> + Send,
    {
        // A layer further out may have read another body than this one.
        parts.extensions.remove::<RequestBody>();
        let mut body = TakenBody::Unread(body);
        let mut found = self.key.extract(parts).await;
        if found.as_ref().is_err_and(KeyError::is_body_unread) {
            let read = body.read(&self.settings.body_reader).await?;
            parts.extensions.insert(RequestBody(read.clone()));
            body = TakenBody::Read(read);
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

    async fn claim(&self, identity: &Identity<'_>) -> Result<LockGuard, Rejection> {
        let settings = &self.settings;
        let mut request = self
            .client
            .lock(&identity.name)
            .wait(settings.wait)
            .lease(settings.lease)
            .max_waiters(settings.max_waiters)
            .route(route(identity.parts));
        if let Some(max_hold) = settings.max_hold {
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

    /// The recorded response to this request.
    ///
    /// # Errors
    ///
    /// The key was used for another request, or the record is unavailable or unreadable.
    async fn look_up(&self, identity: &Identity<'_>) -> Result<Option<Response<Bytes>>, Rejection> {
        let record = timeout(LOOK_UP, self.client.record(&identity.name)).await;
        let record = record.unwrap_or_else(|elapsed| {
            Err(StoreError::new(StoreErrorKind::Unanswered, elapsed).into())
        })?;
        let Some(record) = record else {
            return Ok(None);
        };
        let recorded = Recorded::decode(&record).map_err(|error| {
            tracing::error!(%error, "the record of a request cannot be read");
            Rejection::new(RejectionKind::RecordUnreadable)
        })?;
        match identity.is_of(recorded.fingerprint) {
            true => Ok(Some(recorded.replay())),
            false => Err(Rejection::new(RejectionKind::KeyReused)),
        }
    }
}

impl Identity<'_> {
    /// Whether a recorded fingerprint is this request's.
    fn is_of(&self, recorded: Fingerprint) -> bool {
        match recorded.version {
            Version::One => recorded == Fingerprint::version_1(self.parts, self.body),
            Version::Two => recorded == self.fingerprint,
        }
    }
}

/// The label of a request's metrics.
pub(super) fn route(parts: &Parts) -> Route {
    Route::new(template(parts))
}

/// A request's body, read or not.
enum TakenBody<B> {
    Unread(B),
    Read(Bytes),
}

impl<B: Body> TakenBody<B> {
    async fn read(self, reader: &BodyReader) -> Result<Bytes, Rejection> {
        match self {
            Self::Unread(body) => reader.read(body).await.map_err(Rejection::new),
            Self::Read(body) => Ok(body),
        }
    }
}

impl<B: From<Bytes>> TakenBody<B> {
    fn into_body(self) -> B {
        match self {
            Self::Unread(body) => body,
            Self::Read(body) => body.into(),
        }
    }
}
