//! The admission of a request: from its head to the grant.

use std::error::Error;
use std::time::Duration;

use http::request::Parts;
use tokio::time::Instant;

use super::body_mode::BodyMode;
use super::rejection::Rejection;
use super::serve::{Claim, Unclaimed};
use super::settings::{Confirm, OnUnavailable};
use super::{DistributedLockLayer, payload};
use crate::client::{LockRequest, Started, Target};
use crate::error::LockError;
use crate::guard::{LockGuard, LockHandle};
use crate::key::{Keys, template};
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

/// The locks that a request needs.
struct Plan {
    request: LockRequest,
    owner: Owner,
    reads_only: bool,
}

impl<M> DistributedLockLayer<M> {
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
        let mut plan = self.plan(parts, keys, mode);
        match self.acquire(&mut plan, parts).await? {
            Some(claim) => Ok((body, claim)),
            None => Err(Unclaimed::Proceed(body)),
        }
    }

    fn plan(&self, parts: &Parts, keys: Keys, mode: LockMode) -> Plan {
        let serve = &self.policy.serve;
        let tenant = self.policy.tenant.as_ref().and_then(|of| of(parts));
        let mut targets = keys.into_targets();
        for target in &mut targets {
            target.or_mode(mode);
            if let Some(tenant) = &tenant {
                target.tenant(tenant);
            }
        }
        let reads = |target: &Target| target.mode_in(None) == LockMode::Read;
        let reads_only = targets.iter().all(reads);
        let request = match targets.into_inner() {
            Ok([target]) => serve.client.lock(target),
            Err(targets) => serve.client.lock_all(targets),
        };
        let owner = parts.extensions.get::<Owner>().cloned();
        let owner = owner.unwrap_or_else(Owner::new);
        let mut request = serve.request(request.owner(&owner), Route::new(template(parts)));
        if self.policy.fenced && request.has_exclusive() {
            request = request.fenced();
        }
        Plan {
            request,
            owner,
            reads_only,
        }
    }

    /// Takes the lock. Returns the claim; `None`: the request continues without a lock.
    async fn acquire(
        &self,
        plan: &mut Plan,
        parts: &mut Parts,
    ) -> Result<Option<Claim<EndTerms>>, Rejection> {
        let began = self.policy.server_timing.then(Instant::now);
        let owner = || plan.owner.clone();
        match granted(&mut plan.request).await {
            Ok(guard) => {
                parts.extensions.get_or_insert_with(owner);
                let granted = Instant::now();
                let terms = EndTerms {
                    confirm: self.policy.confirm(plan.reads_only),
                    granted,
                    waited: began.map(|began| granted - began),
                };
                Ok(Some(Claim { guard, data: terms }))
            }
            Err(LockError::Unavailable(error))
                if self.policy.on_unavailable(plan.reads_only) == OnUnavailable::Proceed =>
            {
                parts.extensions.get_or_insert_with(owner);
                // The handle of a lock further out would be taken for this one.
                parts.extensions.remove::<LockHandle>();
                if let Some(left_out) = self.policy.unlocked.due() {
                    let error = &error as &dyn Error;
                    tracing::warn!(error, left_out, "a request goes on without its lock");
                }
                Ok(None)
            }
            Err(error) => {
                let takes_permits = plan.request.takes_permits();
                Err(Rejection::of(error, takes_permits))
            }
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
