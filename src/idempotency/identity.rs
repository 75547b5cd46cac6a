//! What identifies a request: the name of its record, and its fingerprint.

use std::borrow::Cow;
use std::sync::Arc;

use http::header::CONTENT_TYPE;
use http::request::Parts;
use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use crate::client::Target;
use crate::key::{Keys, original_path, original_query, template};
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
    /// The name of a request's lock and record: method, route, tenant and key; and the tenant, as the scope of the record.
    pub(super) fn name(&self, parts: &Parts, keys: Keys) -> (LockKey, Arc<str>) {
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
        let name = LockKey::scoped("idempotency", scope, &keys);
        (name, tenant.into())
    }
}

/// A digest of a request. Two requests with one fingerprint are repeats of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint(pub(super) [u8; 32]);

impl Fingerprint {
    /// The default fingerprint: method, path, query, content type and body.
    pub(super) fn of(parts: &Parts, body: &[u8]) -> Self {
        let mut digest = Sha256::new();
        update(&mut digest, parts.method.as_str().as_bytes());
        update(&mut digest, original_path(parts).as_bytes());
        update(&mut digest, original_query(parts).as_bytes());
        let content_types = parts.headers.get_all(CONTENT_TYPE);
        digest.update((content_types.iter().count() as u64).to_be_bytes());
        for line in content_types {
            update(&mut digest, line.as_bytes());
        }
        digest.update(body);
        Self(digest.finalize().into())
    }

    /// The fingerprint that a function of the program computes.
    pub(super) fn of_bytes(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

/// Adds a part with its length, so that the boundary between two parts counts.
fn update(digest: &mut Sha256, part: &[u8]) {
    digest.update((part.len() as u64).to_be_bytes());
    digest.update(part);
}
