//! From the head of a request to its grant.

use std::error::Error;

use http::request::Parts;

use super::DistributedLockLayer;
use super::rejection::Refusal;
use super::settings::{OnMissing, OnUnavailable};
use crate::client::LockRequest;
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::key::{KeyError, KeyExtractor, Keys, template};
use crate::lock::{LockKey, LockMode, Owner};
use crate::telemetry::Route;

/// What a request is to lock.
pub(super) struct Plan {
    request: LockRequest,
    reads_only: bool,
}

impl<K: KeyExtractor, I> DistributedLockLayer<K, I> {
    /// What to lock; `None`: nothing.
    pub(super) async fn plan(&self, parts: &mut Parts) -> Result<Option<Plan>, Refusal> {
        let Some(mode) = self.policy.mode(parts) else {
            return Ok(None);
        };
        let (keys, missing) = match self.key.extract(parts).await {
            Ok(keys) => (keys, KeyError::missing()),
            Err(error) if error.is_missing() => (Keys::default(), error),
            Err(error) => return Err(error.into()),
        };
        let keys = match self.policy.on_missing {
            _ if !keys.is_empty() => keys,
            OnMissing::Reject => return Err(missing.into()),
            OnMissing::Skip => return Ok(None),
            OnMissing::Use(name) => Keys::derived(LockKey::from_parts(name, [""; 0])),
        };
        Ok(Some(
            self.ask_for(keys.targets(mode), Route::new(template(parts))),
        ))
    }

    fn ask_for(&self, targets: Vec<(LockKey, LockMode)>, route: Route) -> Plan {
        let policy = &self.policy;
        let exclusive = |(_, mode): &(_, LockMode)| mode.is_exclusive();
        let reads_only = !targets.iter().any(exclusive);
        let fenced = policy.fenced && targets.iter().all(exclusive);
        let mut request = match <[_; 1]>::try_from(targets) {
            Ok([(key, mode)]) => self.client.lock(key).mode(mode),
            Err(targets) => self.client.lock_all(targets),
        };
        request = request
            .wait(policy.wait)
            .lease(policy.lease)
            .max_waiters(policy.max_waiters)
            .route(route);
        if let Some(max_hold) = policy.max_hold {
            request = request.max_hold(max_hold);
        }
        if fenced {
            request = request.fenced();
        }
        Plan {
            request,
            reads_only,
        }
    }

    /// Takes the lock; `None`: the request goes on without one.
    pub(super) async fn admit(
        &self,
        plan: Option<Plan>,
        parts: &mut Parts,
    ) -> Result<Option<LockGuard>, Refusal> {
        let Some(plan) = plan else {
            return Ok(None);
        };
        let owner = parts.extensions.get_or_insert_with(Owner::new);
        match plan.request.owner(owner).acquire().await {
            Ok(guard) => Ok(Some(guard)),
            Err(LockError::Unavailable(error))
                if self.policy.on_unavailable(plan.reads_only) == OnUnavailable::Proceed =>
            {
                let error = &error as &dyn Error;
                tracing::warn!(error, "a request goes on without its lock");
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}
