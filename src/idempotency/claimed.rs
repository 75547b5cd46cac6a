//! The names that layers have claimed for a request.

use std::fmt;

use crate::lock::LockKey;

/// The name under which an [`IdempotencyLayer`](super::IdempotencyLayer) keeps the record of a request: its method and route, its tenant
/// and its key.
///
/// It is in the extensions of each request that the layer has claimed, and an axum handler extracts it. Two requests have the same
/// name exactly if the layer takes one for a repeat of the other. So it is the key to write into the handler's own transaction: see
/// [the guide](https://github.com/tower-distributed-lock/tower-distributed-lock/blob/main/docs/guide/exactly_once.md). The raw
/// header is not, because it lacks the tenant, and `"k"` and `k` are one key.
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
///     // INSERT INTO done (key, …) VALUES ($1, …) ON CONFLICT DO NOTHING
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
    /// The names of layers further out.
    outer: Vec<LockKey>,
}

impl IdempotencyKey {
    /// The key of `name`, in a request that already has the key `outer`. `None`: a layer further out has claimed that name.
    pub(super) fn claimed(name: LockKey, outer: Option<&Self>) -> Option<Self> {
        let mut names = outer.map_or_else(Vec::new, |outer| outer.outer.clone());
        names.extend(outer.map(|outer| outer.name.clone()));
        (!names.contains(&name)).then_some(Self { name, outer: names })
    }

    /// The name of the record.
    pub fn as_str(&self) -> &str {
        self.name.as_str()
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
