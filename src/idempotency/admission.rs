//! The admission of a request: from its head to the lock of its key.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::header::ACCEPT_ENCODING;
use http::request::Parts;
use http_body::Body;
use tokio::time::Instant;

use super::IdempotencyLayer;
use super::claimed::IdempotencyKey;
use super::fingerprint::Fingerprint;
use super::local::READ;
use super::record::decode;
use crate::client::LockRequest;
use crate::error::{BoxError, LockError};
use crate::guard::LockGuard;
use crate::layer::{
    Claim, NotAdmitted, OnMissing, Rejection, RejectionKind, RequestLock, WholeBody, extract,
    granted, in_time, whole,
};
use crate::limits::{FOR_EVER, LAST_MOMENT};
use crate::lock::LockKey;
use crate::telemetry::Route;

/// How long the store may take to read a record.
const LOOK_UP: Duration = Duration::from_secs(2);

/// The data for the record of a request.
pub(crate) struct RecordContext {
    pub(super) name: LockKey,
    pub(super) fingerprint: Fingerprint,
    pub(super) scope: Arc<str>,
}

impl IdempotencyLayer {
    /// Answers a repeat, or claims the key of a request.
    pub(super) async fn replay_or_claim<B>(
        &self,
        parts: &mut Parts,
        body: B,
        route: &Route,
    ) -> Result<(B, Claim<RecordContext>), NotAdmitted<B>>
    where
        B: Body<Data: Send, Error: Into<BoxError>> + From<Bytes> + Send,
    {
        let serve = &self.settings.serve;
        let (extracted, body) =
            extract::<WholeBody, B>(&self.settings.key, &serve.client, parts, body).await?;
        let on_missing = match &extracted {
            Err(error) if error.is_of_the_program() => OnMissing::Reject,
            _ => self.settings.on_missing,
        };
        // Without a key there is no promise.
        let Some(keys) = on_missing.keys(extracted)? else {
            return Err(NotAdmitted::Bypass(body.body));
        };
        let (name, scope) = self.settings.name(parts, keys)?;
        let name = serve.client.named(name);
        let outer = parts.extensions.get::<IdempotencyKey>();
        if outer.is_some_and(|outer| outer.covers(&name)) {
            // A layer further out holds the lock of this name for this request, which would wait for itself.
            return Err(NotAdmitted::Bypass(body.body));
        }
        let wait = serve.wait(parts);
        let request = || serve.request(serve.client.lock(&name), wait, route);
        let mut foreseen = Duration::ZERO;
        // Also if the key was found in the body, which is read then: one request too many does not ask the store.
        if !body.body.is_end_stream() && self.settings.local.get(&name).is_none() {
            let record = in_time(Instant::now() + LOOK_UP, serve.client.record(&name));
            foreseen = match serve.foresee(&mut request(), true).await {
                // Those who wait may all be about to find the record.
                Err(LockError::Overloaded) if matches!(record.await, Ok(Some(_))) => Duration::ZERO,
                foreseen => foreseen?,
            };
        }
        let (body, read, _room) = body
            .take::<WholeBody>(&serve.body_budget, parts, &name)
            .await?;
        let fingerprint = match &self.settings.fingerprint {
            Some(fingerprint) => fingerprint(parts, &read),
            None => Fingerprint::of(parts, &read),
        };
        let outer = parts.extensions.remove();
        let key = IdempotencyKey::within(outer, name.clone(), fingerprint);
        parts.extensions.insert(key);
        // The record answers clients that accept other encodings.
        parts.headers.remove(ACCEPT_ENCODING);
        let began = Instant::now() - foreseen;
        let until = began + wait.clamp(LOOK_UP, FOR_EVER);
        let refused = |error: &LockError| {
            serve.failed(error);
            request().report(error, began);
        };
        // A record does not change during its retention, so a replay needs no lock.
        if let Some(replay) = self.look_up(&name, fingerprint, until, refused).await? {
            return Err(NotAdmitted::Answer(replay.map(whole)));
        }
        let owner = &RequestLock::of(&mut parts.extensions).owner;
        let left = until.saturating_duration_since(Instant::now());
        let request = request().owner(owner).wait(wait.min(left));
        let guard = self.claim(request, fingerprint, until).await?;
        let granted = Instant::now();
        // The response may have been recorded between the read and the grant. From here no other request records.
        let until = until.max(granted) + LAST_MOMENT;
        if let Some(replay) = self.look_up(&name, fingerprint, until, refused).await? {
            guard.discard();
            return Err(NotAdmitted::Answer(replay.map(whole)));
        }
        if let Err(refused) = self.may_begin(&guard) {
            guard.discard();
            return Err(refused.into());
        }
        // Without its owner, so that it cannot be shared: the record needs the last share.
        RequestLock::of(&mut parts.extensions).lock = Some(guard.handle());
        let context = RecordContext {
            name,
            fingerprint,
            scope,
        };
        let claim = Claim {
            guard,
            timed: serve.timed_hold(began, granted, route),
            context,
        };
        Ok((body, claim))
    }

    /// Takes the lock of a request. Those who wait take it one after the other to look for the record, so the record may be there although
    /// the wait was over before their turn.
    async fn claim<B>(
        &self,
        mut request: LockRequest,
        fingerprint: Fingerprint,
        until: Instant,
    ) -> Result<LockGuard, NotAdmitted<B>> {
        // The one attempt of a wait that is spent has no two seconds of its own.
        let error = match in_time(until + LAST_MOMENT, granted(&mut request)).await {
            Ok(guard) => return Ok(guard),
            Err(error) => error,
        };
        self.settings.serve.failed(&error);
        if matches!(error, LockError::Busy { .. } | LockError::Overloaded) {
            let until = Instant::now() + LAST_MOMENT;
            let found = self.look_up(request.key(), fingerprint, until, |_| ());
            match found.await {
                Ok(Some(replay)) => return Err(NotAdmitted::Answer(replay.map(whole))),
                Err(found) if found.kind() != RejectionKind::Unavailable => {
                    return Err(found.into());
                }
                _ => {}
            }
        }
        let refused = Rejection::from(error).contended_as(RejectionKind::InProgress);
        Err(refused.into())
    }

    /// Whether work may begin under `guard`: the second read may have taken longer than the lease, or the client may have been shut
    /// down.
    fn may_begin(&self, guard: &LockGuard) -> Result<(), Rejection> {
        let error = match self.settings.serve.client.is_shut_down() {
            true => LockError::Shutdown,
            false if guard.is_lost() => LockError::Lost,
            false => return Ok(()),
        };
        Err(Rejection::new(RejectionKind::Unavailable).with_cause(error))
    }

    /// The recorded response to the request with this name and fingerprint. `refused` gets the error of the store.
    ///
    /// # Errors
    ///
    /// The key was used for another request, or the record is unavailable or unreadable.
    pub(super) async fn look_up(
        &self,
        name: &LockKey,
        fingerprint: Fingerprint,
        until: Instant,
        refused: impl FnOnce(&LockError),
    ) -> Result<Option<Response<Bytes>>, Rejection> {
        let until = until.min(Instant::now() + LOOK_UP);
        let local = &self.settings.local;
        let record = match local.get(name) {
            Some(record) => record,
            None => {
                let record = self.settings.serve.client.record(name);
                let answered = in_time(until, record).await;
                let Some(record) = answered.inspect_err(refused)? else {
                    return Ok(None);
                };
                let known = self.settings.retention().min(READ);
                local.remember(name, record.clone(), Instant::now() + known);
                record
            }
        };
        let (recorded, replay) = decode(&record).map_err(|reason| {
            let cause = LockError::invalid(reason);
            Rejection::new(RejectionKind::RecordUnreadable).with_cause(cause)
        })?;
        match recorded == fingerprint {
            true => Ok(Some(replay)),
            false => Err(Rejection::new(RejectionKind::KeyReused)),
        }
    }
}
