//! The scope of an idempotency key: method, route and tenant.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use smallvec::SmallVec;

use crate::key::{Keys, original_path, template};
use crate::lock::LockKey;

type TenantOf = dyn Fn(&Parts) -> Option<String> + Send + Sync;

/// Which clients share the idempotency keys of a layer.
#[derive(Clone)]
pub(super) enum Scope {
    /// The program has not decided.
    Undecided,
    /// All clients.
    Shared,
    /// The clients of one tenant.
    PerTenant(Arc<TenantOf>),
}

impl Scope {
    /// The name of a request's lock and record: method, route, tenant and key.
    pub(super) fn name(&self, parts: &Parts, keys: Keys) -> LockKey {
        let tenant = match self {
            Self::Undecided | Self::Shared => None,
            Self::PerTenant(tenant) => tenant(parts),
        };
        // A request without a tenant and the tenant with the empty name are two scopes.
        let tenant = tenant.map_or(String::new(), |tenant| format!("={tenant}"));
        let route = route(parts);
        let scope = [parts.method.as_str(), &route, &tenant];
        let keys: SmallVec<[LockKey; 1]> = keys.into_names().collect();
        let keys = keys.iter().map(LockKey::as_str);
        LockKey::from_parts("idempotency", scope.into_iter().chain(keys))
    }
}

/// The template that axum has matched; without one, the path.
fn route(parts: &Parts) -> Cow<'_, str> {
    template(parts).map_or_else(|| original_path(parts).into(), Cow::Borrowed)
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Undecided => "Undecided",
            Self::Shared => "Shared",
            Self::PerTenant(_) => "PerTenant",
        })
    }
}
