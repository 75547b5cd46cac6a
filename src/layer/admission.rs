//! The admission of a request: from its head to the grant.

use std::error::Error;
use std::time::Duration;

use http::request::Parts;
use tokio::time::Instant;

use super::body_mode::BodyMode;
use super::policy::Policy;
use super::rejection::Rejection;
use super::serve::{Claim, Unclaimed};
use super::settings::{Confirm, OnUnavailable};
use super::{DistributedLockLayer, payload};
use crate::client::{LockRequest, Started};
use crate::error::LockError;
use crate::guard::{LockGuard, LockHandle};
use crate::key::{KeyExtractor, Keys, template};
use crate::lock::{LockMode, Owner};
use crate::telemetry::Route;

/// What the end of a request needs.
pub(crate) struct EndTerms {
    /// What confirms the release.
    pub(super) confirm: Confirm,
    pub(super) granted: Instant,
    /// How long the request waited for its lock, if the response says it.
    pub(super) waited: Option<Duration>,
}

impl<K: KeyExtractor, M> DistributedLockLayer<K, M> {
    /// Takes the locks of a request. Returns its body and the claim; `None`: the request continues without a lock. A body is read
    /// only for a lock.
    pub(super) async fn claim<B>(
        &self,
        parts: &mut Parts,
        body: B,
    ) -> Result<(B, Claim<EndTerms>), Unclaimed<B>>
    where
        M: BodyMode<B>,
        B: Send,
    {
        let Some(mode) = self.policy.mode(parts) else {
            return Err(Unclaimed::Pass(body));
        };
        let reader = &self.policy.serve.body_reader;
        let (found, body) = payload::extract::<M, B>(&self.key, reader, parts, body).await?;
        let Some(keys) = self.policy.keys(found)? else {
            return Err(Unclaimed::Pass(body.body));
        };
        let (body, _) = body.take::<M>(reader).await?;
        let mut locks = self.policy.locks(parts, keys, mode);
        match self.policy.acquire(&mut locks, parts).await? {
            Some(claim) => Ok((body, claim)),
            None => Err(Unclaimed::Proceed(body)),
        }
    }
}

impl Policy {
    /// The locks that a request needs.
    fn locks(&self, parts: &mut Parts, keys: Keys, mode: LockMode) -> LockRequest {
        let serve = &self.serve;
        let tenant = self.tenant.as_ref().and_then(|of| of(parts));
        let mut targets = keys.into_targets();
        for target in &mut targets {
            target.or_mode(mode);
            if let Some(tenant) = &tenant {
                target.tenant(tenant);
            }
        }
        let request = match targets.into_inner() {
            Ok([target]) => serve.client.lock(target),
            Err(targets) => serve.client.lock_all(targets),
        };
        let request = request.owner(parts.extensions.get_or_insert_with(Owner::new));
        let request = serve.request(request, Route::new(template(parts)));
        match self.fenced && request.has_exclusive() {
            true => request.fenced(),
            false => request,
        }
    }

    /// Takes the lock. Returns the claim; `None`: the request continues without a lock.
    async fn acquire(
        &self,
        locks: &mut LockRequest,
        parts: &mut Parts,
    ) -> Result<Option<Claim<EndTerms>>, Rejection> {
        let began = self.server_timing.then(Instant::now);
        match granted(locks).await {
            Ok(guard) => {
                parts.extensions.insert(guard.handle());
                let granted = Instant::now();
                let terms = EndTerms {
                    confirm: self.confirm(locks.reads_only()),
                    granted,
                    waited: began.map(|began| granted - began),
                };
                Ok(Some(Claim { guard, data: terms }))
            }
            Err(LockError::Unavailable(error))
                if self.on_unavailable(locks.reads_only()) == OnUnavailable::Proceed =>
            {
                // The handle of a lock further out would be taken for this one.
                parts.extensions.remove::<LockHandle>();
                if let Some(left_out) = self.unlocked.due() {
                    let error = &error as &dyn Error;
                    tracing::warn!(error, left_out, "a request goes on without its lock");
                }
                Ok(None)
            }
            Err(error) => Err(Rejection::of(error, locks.takes_permits())),
        }
    }
}

/// Takes the lock.
async fn granted(request: &mut LockRequest) -> Result<LockGuard, LockError> {
    // In a scope of its own, so that the result takes no room in the future of the wait.
    let waiting = {
        match request.start().await? {
            Started::Granted(guard) => return Ok(guard),
            // Boxed, because it is large, and a free lock in memory is granted without it.
            Started::Waits(acquisition) => Box::pin(acquisition.finish()),
        }
    };
    waiting.await
}
