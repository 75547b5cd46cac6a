//! The name of a request's lock and record.

use std::borrow::Cow;
use std::sync::Arc;

use http::request::Parts;
use smallvec::SmallVec;

use super::fingerprint::Fingerprint;
use crate::client::Target;
use crate::error::LockError;
use crate::key::{Keys, original_path, template};
use crate::layer::RequestFn;
use crate::lock::LockKey;

/// Which requests share the idempotency keys of a layer.
#[derive(Debug, Clone, Default)]
pub(super) struct Scope {
    pub(super) clients: Clients,
    /// Whether requests without a tenant share their keys.
    pub(super) anonymous: bool,
    /// In place of method and route.
    pub(super) name: Option<Cow<'static, str>>,
}

/// Whose requests they are.
#[derive(Debug, Clone, Default)]
pub(super) enum Clients {
    /// The program has not decided.
    #[default]
    Undecided,
    /// All clients are one.
    Shared,
    /// The tenants are kept apart.
    PerTenant(RequestFn<Option<String>>),
}

impl Scope {
    /// The name of a request's lock and record: method and route, or the name of the scope; then tenant and key. Beside it the
    /// tenant, as the scope of the record.
    ///
    /// # Errors
    ///
    /// The program has put no tenant into the request.
    pub(super) fn name(&self, parts: &Parts, keys: Keys) -> Result<(LockKey, Arc<str>), LockError> {
        let tenant = match &self.clients {
            Clients::Undecided | Clients::Shared => None,
            Clients::PerTenant(tenant) => tenant(parts),
        };
        let tenant = match tenant {
            // A request without a tenant and the tenant with the empty name are two scopes.
            Some(tenant) => format!("={tenant}"),
            None if self.anonymous || !matches!(self.clients, Clients::PerTenant(_)) => {
                String::new()
            }
            None => {
                return Err(LockError::invalid(
                    "a request has no tenant, so that it would share its idempotency keys with strangers: put the \
                     authentication outside of `IdempotencyLayer` (axum runs the layer that is added last first), or call \
                     `anonymous` if requests without a tenant are meant to share their keys",
                ));
            }
        };
        let (method, route) = match &self.name {
            Some(name) => ("", Cow::Borrowed(&**name)),
            None => (parts.method.as_str(), route(parts)),
        };
        let scope = [method, &route, &tenant];
        let keys = keys.into_targets();
        let keys: SmallVec<[&LockKey; 1]> = keys.iter().map(Target::key).collect();
        let name = LockKey::scoped("idempotency", scope, &keys);
        Ok((name, tenant.into()))
    }

    /// The default fingerprint of a request. In a scope with a name it has the path inside of the nest that the layer is in, so
    /// that the nest may move.
    pub(super) fn fingerprint(&self, parts: &Parts, body: &[u8]) -> Fingerprint {
        match self.name {
            Some(_) => Fingerprint::of(parts, parts.uri.path(), body),
            None => Fingerprint::of(parts, &original_path(parts), body),
        }
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
