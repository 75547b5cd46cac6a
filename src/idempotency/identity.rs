//! The name of a request's lock and record.

use std::borrow::Cow;
use std::sync::Arc;

use http::request::Parts;
use smallvec::SmallVec;

use super::settings::IdempotencySettings;
use crate::error::LockError;
use crate::key::{Keys, original_path, template};
use crate::lock::{LockKey, ResourceKey};

impl IdempotencySettings {
    /// The name of a request's lock and record: method, route, tenant and key. Beside it the tenant, as the scope of the record.
    ///
    /// # Errors
    ///
    /// The program has put no tenant into the request, and requests without one are not `anonymous`.
    pub(super) fn name(&self, parts: &Parts, keys: Keys) -> Result<(LockKey, Arc<str>), LockError> {
        // A request without a tenant and the tenant with the empty name are two scopes.
        let tenant = self.serve.tenant(parts)?.map(|tenant| format!("={tenant}"));
        let tenant = tenant.unwrap_or_default();
        let scope = [parts.method.as_str(), &route(parts), &tenant];
        let keys = keys.into_targets();
        let keys: SmallVec<[&LockKey; 1]> = keys.iter().map(ResourceKey::key).collect();
        let name = LockKey::scoped("idempotency", scope, &keys);
        Ok((name, tenant.into()))
    }
}

/// The shape of the route, or the path outside of routes. The names of parameters are not part of it: a deploy may change them.
fn route(parts: &Parts) -> Cow<'_, str> {
    let Some(template) = template(parts) else {
        return original_path(parts).into();
    };
    let mut shape = String::with_capacity(template.len());
    let mut chars = template.chars().peekable();
    while let Some(char) = chars.next() {
        shape.push(char);
        if char != '{' {
            continue;
        }
        // Two braces are a brace of the path.
        if let Some(literal) = chars.next_if_eq(&'{') {
            shape.push(literal);
            continue;
        }
        shape.extend(chars.next_if_eq(&'*'));
        shape.extend(chars.find(|char| *char == '}'));
    }
    shape.into()
}
