//! The admission of a request: from its head to the grant.

use std::error::Error;
use std::time::Duration;

use http::request::Parts;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::body_mode::BodyMode;
use super::rejection::{Refusal, Rejection};
use super::serve::Claim;
use super::settings::{Confirm, OnUnavailable};
use super::{DistributedLockLayer, payload};
use crate::client::{LockRequest, Started};
use crate::error::LockError;
use crate::guard::{LockGuard, LockHandle};
use crate::key::{KeyExtractor, template};
use crate::lock::{LockKey, LockMode, Owner};
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
pub(super) struct Plan {
    request: LockRequest,
    owner: Owner,
    reads_only: bool,
}

impl<K: KeyExtractor, M> DistributedLockLayer<K, M> {
    /// The locks of a request (`None`: none), and the body for the handler. A body is read only for a lock.
    pub(super) async fn plan<B>(
        &self,
        parts: &mut Parts,
        body: B,
    ) -> Result<(Option<Plan>, B), Refusal>
    where
        M: BodyMode<B>,
        B: Send,
    {
        let Some(mode) = self.policy.mode(parts) else {
            return Ok((None, body));
        };
        let reader = &self.policy.serve.body_reader;
        let (found, body) = payload::extract::<M, B>(&self.key, reader, parts, body).await?;
        let Some(keys) = self.policy.keys(found)? else {
            return Ok((None, body.into_inner()));
        };
        let (body, _) = body.take::<M>(reader).await?;
        let mut targets = keys.targets(mode)?;
        if let Some(tenant) = self.policy.tenant.of(parts).flatten() {
            for (key, _) in &mut targets {
                *key = key.tenant(&tenant);
            }
        }
        let owner = parts.extensions.get::<Owner>().cloned();
        let owner = owner.unwrap_or_else(Owner::new);
        let plan = self.ask_for(targets, owner, Route::new(template(parts)));
        Ok((Some(plan), body))
    }

    fn ask_for(
        &self,
        targets: SmallVec<[(LockKey, LockMode); 1]>,
        owner: Owner,
        route: Route,
    ) -> Plan {
        let policy = &self.policy;
        let exclusive = |(_, mode): &(_, LockMode)| mode.is_exclusive();
        let reads_only = targets.iter().all(|(_, mode)| *mode == LockMode::Read);
        let fenced = policy.fenced && targets.iter().all(exclusive);
        let request = match targets.into_inner() {
            Ok([(key, mode)]) => policy.serve.client.lock(key).mode(mode),
            Err(targets) => policy.serve.client.lock_all(targets),
        };
        let mut request = policy.serve.request(request.owner(&owner), route);
        if fenced {
            request = request.fenced();
        }
        Plan {
            request,
            owner,
            reads_only,
        }
    }

    /// Takes the lock. Returns how its release is confirmed; `None`: the request continues without a lock.
    pub(super) async fn acquire(
        &self,
        plan: &mut Plan,
        parts: &mut Parts,
    ) -> Result<Option<Claim<EndTerms>>, Refusal> {
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
                Ok(Some(Claim { guard, terms }))
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
                Err(Rejection::of(error, takes_permits).into())
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
