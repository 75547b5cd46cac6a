//! The names that layers have claimed for a request.

use std::fmt;

use super::fingerprint::Fingerprint;
use crate::lock::LockKey;

/// The name under which an [`IdempotencyLayer`](super::IdempotencyLayer) keeps the record of a request: its method and route, its tenant
/// and its key.
///
/// It is in the extensions of each request that the layer has claimed, and an axum handler extracts it. The layer takes a request for
/// a repeat of another one if both have this name and the same [`fingerprint`](Self::fingerprint). So these two belong into the handler's
/// own transaction: see
/// [the guide](https://github.com/tower-distributed-lock/tower-distributed-lock/blob/main/docs/guide/exactly_once.md). The raw
/// header does not, because it lacks the tenant, and `"k"` and `k` are one key.
///
/// A request without a key passes the layer unclaimed: extract an `Option<IdempotencyKey>` there, or set
/// [`required`](super::IdempotencyLayer::required). Of several layers, it is the name of the innermost one.
///
/// ```
/// # #[cfg(feature = "axum")] {
/// # use axum::{Router, routing::post};
/// # use tower_distributed_lock::{IdempotencyLayer, LockClient, MemoryStore};
/// use tower_distributed_lock::idempotency::IdempotencyKey;
///
/// async fn pay(key: IdempotencyKey) -> String {
///     // INSERT INTO done (key, request, …) VALUES ($1, $2, …) ON CONFLICT DO NOTHING
///     format!("paid under {key}")
/// }
/// # let locks = LockClient::new(MemoryStore::new());
/// let once = IdempotencyLayer::new(locks).shared().required();
/// let app: Router = Router::new().route("/payments", post(pay).route_layer(once));
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey {
    name: LockKey,
    fingerprint: Fingerprint,
    /// The names of layers further out.
    outer: Vec<LockKey>,
}

impl IdempotencyKey {
    /// The key of a request that already has the key `outer`.
    pub(super) fn within(outer: Option<Self>, name: LockKey, fingerprint: Fingerprint) -> Self {
        let mut names = Vec::new();
        if let Some(outer) = outer {
            names = outer.outer;
            names.push(outer.name);
        }
        Self {
            name,
            fingerprint,
            outer: names,
        }
    }

    /// Whether the layer of this key or one further out has claimed that name.
    pub(super) fn covers(&self, name: &LockKey) -> bool {
        self.name == *name || self.outer.contains(name)
    }

    /// The name of the record.
    pub fn as_str(&self) -> &str {
        self.name.as_str()
    }

    /// The digest (SHA-256) of what makes a request with this name a repeat: by default method, host, path, query, content type, content
    /// encoding and body, or what [`IdempotencyLayer::fingerprint`](super::IdempotencyLayer::fingerprint) says. While the record exists,
    /// the layer compares it; a handler whose own row outlives the record does so itself, and answers 422 if it differs.
    pub fn fingerprint(&self) -> &[u8] {
        &self.fingerprint.0
    }

    /// The key of the record and of its lock, such as [`LockAdmin`](crate::LockAdmin) takes it.
    pub fn lock_key(&self) -> &LockKey {
        &self.name
    }
}

impl AsRef<str> for IdempotencyKey {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(feature = "axum")]
mod axum {
    use std::convert::Infallible;

    use ::axum::extract::{FromRequestParts, OptionalFromRequestParts};
    use http::request::Parts;

    use super::IdempotencyKey;
    use crate::error::LockError;
    use crate::key::template;
    use crate::layer::Rejection;

    /// A request that no layer has claimed is refused as a mistake of the program: 500 `lock-misconfigured`, and the reason in the log.
    impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
        type Rejection = Rejection;

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Rejection> {
            let key = parts.extensions.get().cloned();
            key.ok_or_else(|| {
                let route = template(parts).unwrap_or("no route");
                let reason = format!(
                    "the handler of {route} extracts `IdempotencyKey`, and no key is claimed for its request. Is \
                     `IdempotencyLayer` enabled, and `required`? Extract `Option<IdempotencyKey>` if the key is optional"
                );
                LockError::invalid(reason).into()
            })
        }
    }

    impl<S: Send + Sync> OptionalFromRequestParts<S> for IdempotencyKey {
        type Rejection = Infallible;

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
            Ok(parts.extensions.get().cloned())
        }
    }
}
