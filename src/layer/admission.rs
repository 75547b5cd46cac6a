//! The admission of a request: from its head to the grant.

use std::error::Error;
use std::time::Duration;

use http::request::Parts;
use tokio::time::Instant;

use super::DistributedLockLayer;
use super::rejection::Rejection;
use super::request_lock::RequestLock;
use super::serve::{Claim, NotAdmitted};
use super::settings::{Confirm, OnUnavailable};
use super::take_body::{TakesBody, extract};
use crate::client::{LockRequest, Started, Target};
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::key::Keys;
use crate::lock::{LockKey, LockMode, Owner};
use crate::telemetry::Route;

/// What the end of a request needs.
pub(crate) struct ReleaseContext {
    /// What confirms the release.
    pub(super) confirm: Confirm,
    pub(super) granted: Instant,
    pub(super) waited: Duration,
}

/// The locks that a request needs.
struct Plan {
    request: LockRequest,
    /// The first key.
    key: LockKey,
    owner: Owner,
    reads_only: bool,
}

impl Plan {
    /// What its layers tell the handler.
    fn request_lock<'a>(&self, parts: &'a mut Parts) -> &'a mut RequestLock {
        let owner = || self.owner.clone();
        RequestLock::or_of(&mut parts.extensions, owner)
    }
}

impl<const STREAMED: bool> DistributedLockLayer<STREAMED> {
    /// Takes the locks of a request. Returns its body and the claim; `None`: the request continues without a lock. A body is read
    /// only for a lock.
    pub(super) async fn claim<B>(
        &self,
        parts: &mut Parts,
        body: B,
        route: &Route,
    ) -> Result<(B, Claim<ReleaseContext>), NotAdmitted<B>>
    where
        Self: TakesBody<B>,
        B: Send,
    {
        let Some(mode) = self.policy.mode(parts) else {
            return Err(NotAdmitted::Bypass(passed(parts, body)));
        };
        let (found, body) = extract::<Self, B>(&self.policy.key, parts, body).await?;
        let Some(keys) = self.policy.keys(found)? else {
            return Err(NotAdmitted::Bypass(passed(parts, body.body)));
        };
        let is_nested = parts.extensions.get::<RequestLock>().is_some();
        let (serve, mut plan) = (&self.policy.serve, self.plan(parts, keys, mode, route));
        // An owner may join a hold of its own beside those that wait.
        if !is_nested && (body.is_unread::<Self>(parts) || serve.is_down()) {
            let rejects = self.policy.on_unavailable(plan.reads_only) == OnUnavailable::Reject;
            serve.foresee(&plan.request, rejects).await?;
        }
        let budget = &serve.body_budget;
        let (body, _, _room) = body.take::<Self>(budget, parts, &plan.key).await?;
        match self.acquire(&mut plan, parts).await? {
            Some(claim) => Ok((body, claim)),
            None => Err(NotAdmitted::Unlocked(passed(parts, body))),
        }
    }

    fn plan(&self, parts: &Parts, keys: Keys, mode: LockMode, route: &Route) -> Plan {
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
        let key = targets[0].key().clone();
        let request = match targets.into_inner() {
            Ok([target]) => serve.client.lock(target),
            Err(targets) => serve.client.lock_all(targets),
        };
        let owner = parts.extensions.get::<RequestLock>();
        let owner = owner.map_or_else(Owner::new, |known| known.owner.clone());
        let request = serve.request(request.owner(&owner), serve.wait(parts), route);
        let fenced = self.policy.fenced && request.has_exclusive();
        Plan {
            request: if fenced { request.fenced() } else { request },
            key,
            owner,
            reads_only,
        }
    }

    /// Takes the lock. Returns the claim; `None`: the request continues without a lock.
    async fn acquire(
        &self,
        plan: &mut Plan,
        parts: &mut Parts,
    ) -> Result<Option<Claim<ReleaseContext>>, Rejection> {
        let began = Instant::now();
        let error = match granted(&mut plan.request).await {
            Ok(guard) => {
                plan.request_lock(parts).lock = Some(guard.handle().of_owner(&plan.owner));
                let granted = Instant::now();
                let context = ReleaseContext {
                    confirm: self.policy.confirm(plan.reads_only),
                    granted,
                    waited: granted - began,
                };
                return Ok(Some(Claim { guard, context }));
            }
            Err(error) => error,
        };
        let LockError::Unavailable(cause) = &error else {
            return Err(Rejection::of(error, plan.request.takes_permits()));
        };
        self.policy.serve.failed(&error);
        if self.policy.on_unavailable(plan.reads_only) == OnUnavailable::Reject {
            return Err(error.into());
        }
        // The handle of a lock further out would be taken for this one.
        plan.request_lock(parts).lock = None;
        if let Some(left_out) = self.policy.unlocked.due() {
            let error = cause as &dyn Error;
            tracing::warn!(error, left_out, "a request goes on without its lock");
        }
        Ok(None)
    }
}

/// The layer lets a request with this body pass without a lock.
fn passed<B>(parts: &mut Parts, body: B) -> B {
    RequestLock::of(&mut parts.extensions).passed = true;
    body
}

/// Takes the lock.
async fn granted(request: &mut LockRequest) -> Result<LockGuard, LockError> {
    let waiting = match request.start().await? {
        Started::Granted(guard) => return Ok(guard),
        // Boxed, because it is large, and a free lock in memory is granted without it.
        Started::Waits(acquisition) => Box::pin(acquisition.finish()),
    };
    waiting.await
}
