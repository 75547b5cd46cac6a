//! The scope of an idempotency key: method, route and tenant.

use std::borrow::Cow;

use http::request::Parts;
use smallvec::SmallVec;

use crate::client::Target;
use crate::key::{Keys, original_path, template};
use crate::layer::OfRequest;
use crate::lock::LockKey;

/// Which clients share the idempotency keys of a layer.
#[derive(Debug, Clone)]
pub(super) enum Scope {
    /// The program has not decided.
    Undecided,
    /// All clients.
    Shared,
    /// The clients of one tenant.
    PerTenant(OfRequest<Option<String>>),
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
        let route = template(parts).map_or_else(|| original_path(parts).into(), Cow::Borrowed);
        let scope = [parts.method.as_str(), &route, &tenant];
        let keys = keys.into_targets();
        let keys: SmallVec<[&LockKey; 1]> = keys.iter().map(Target::key).collect();
        LockKey::scoped("idempotency", scope, &keys)
    }
}
