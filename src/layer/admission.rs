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
use crate::client::{LockRequest, Started};
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::key::Keys;
use crate::lock::{LockMode, Owner};
use crate::telemetry::Route;

impl<const STREAMED: bool> DistributedLockLayer<STREAMED> {
    /// Takes the locks of a request. Returns its body, and the claim with what confirms its end. A body is read only for a lock.
    pub(super) fn claim<B>(
        &self,
        parts: &mut Parts,
        body: B,
        route: &Route,
    ) -> impl Future<Output = Result<(B, Claim<Confirm>), NotAdmitted<B>>> + Send
    where
        Self: TakesBody<B>,
        B: Send,
    {
        let (policy, serve) = (&*self.policy, &self.policy.serve);
        async move {
            let Some((mode, reads)) = policy.mode(parts) else {
                return Err(NotAdmitted::Bypass(body));
            };
            let (found, body) = extract::<Self, B>(&policy.key, &serve.client, parts, body).await?;
            let Some(keys) = policy.keys(found)? else {
                return Err(NotAdmitted::Bypass(body.body));
            };
            let known = parts.extensions.get::<RequestLock>();
            let is_nested = known.is_some();
            let owner = known.map_or_else(Owner::new, |known| known.owner.clone());
            let mut request = self.request(parts, keys, mode, &owner, route)?;
            let reads_only = request.is_read() || reads && request.is_exclusive();
            let on_unavailable = policy.on_unavailable(reads_only);
            let mut foreseen = Duration::ZERO;
            // An owner may join a hold of its own beside those that wait.
            if !is_nested && body.is_unread() {
                let rejects = on_unavailable == OnUnavailable::Reject;
                foreseen = serve.foresee(&mut request, rejects).await?;
            }
            let budget = &serve.body_budget;
            let (body, _, _room) = body.take::<Self>(budget, parts, request.key()).await?;
            let asked = Instant::now() - foreseen;
            let error = match granted(&mut request).await {
                Ok(guard) => {
                    let lock = guard.handle().of_owner(&owner);
                    RequestLock::or_of(&mut parts.extensions, || owner).lock = Some(lock);
                    let claim = Claim {
                        guard,
                        timed: serve.timed_hold(asked, Instant::now(), route),
                        context: policy.confirm(reads_only),
                    };
                    return Ok((body, claim));
                }
                Err(error) => error,
            };
            serve.failed(&error);
            let LockError::Unavailable(cause) = &error else {
                return Err(Rejection::of(error, request.takes_permits()).into());
            };
            if on_unavailable == OnUnavailable::Reject {
                return Err(error.into());
            }
            // The handle of a lock further out would be taken for this one.
            RequestLock::or_of(&mut parts.extensions, || owner).lock = None;
            if let Some(left_out) = policy.unlocked.due() {
                let error = cause as &dyn Error;
                tracing::warn!(error, left_out, "a request goes on without its lock");
            }
            Err(NotAdmitted::Unlocked(body))
        }
    }

    fn request(
        &self,
        parts: &Parts,
        keys: Keys,
        mode: LockMode,
        owner: &Owner,
        route: &Route,
    ) -> Result<LockRequest, LockError> {
        let serve = &self.policy.serve;
        let tenant = serve.tenant(parts)?;
        let mut targets = keys.into_targets();
        for target in &mut targets {
            target.or_mode(mode);
            if let Some(tenant) = &tenant {
                *target = target.tenant(tenant);
            }
        }
        let request = match targets.into_inner() {
            Ok([target]) => serve.client.lock(target),
            Err(targets) => serve.client.lock_all(targets),
        };
        let request = serve.request(request.owner(owner), serve.wait(parts), route);
        Ok(match self.policy.fenced && request.has_exclusive() {
            true => request.fenced(),
            false => request,
        })
    }
}

/// Takes the lock.
pub(crate) async fn granted(request: &mut LockRequest) -> Result<LockGuard, LockError> {
    let waiting = match request.start().await? {
        Started::Granted(guard) => return Ok(guard),
        // Boxed, because it is large, and a free lock in memory is granted without it.
        Started::Waits(acquisition) => Box::pin(acquisition.finish()),
    };
    waiting.await
}
