use std::future::ready;
#[cfg(feature = "axum")]
use std::{collections::HashSet, sync::Arc};

use http::request::Parts;

use super::path::key_of_path;
use super::{KeyError, KeyExtractor, Keys};
#[cfg(feature = "axum")]
use crate::sync::Mutex;

/// The default key extractor of a layer.
///
/// Inside an axum route: the route's template and every decoded parameter, in order, so that `/orders/1` and `/orders/%31`
/// are one. Elsewhere (around a whole router, in a fallback, without axum), the key is that of [`path`](super::path()).
///
/// **Wrong where the handler reads two spellings of a parameter as one value** (`1` and `01`, or in `{*path}` `a/b` and `a//b`),
/// and **where several routes lead to one resource**: `/orders/{id}` and `/orders/{id}/refunds` are two keys.
///
/// A route without parameters is one key: each `POST /orders` waits for the one before, in all processes. The first write of such a
/// route is logged as a warning, and so is the first request that falls back to its path in a program that has the feature `axum`.
/// [`key::path()`](super::path()) says that it is meant.
#[derive(Debug, Clone, Default)]
pub struct DefaultKey {
    /// The routes that the log has warned of. The fallback is the empty one.
    #[cfg(feature = "axum")]
    warned: Arc<Mutex<HashSet<String>>>,
}

impl KeyExtractor for DefaultKey {
    fn extract(&self, parts: &mut Parts) -> impl Future<Output = Result<Keys, KeyError>> + Send {
        ready(self.of(parts))
    }
}

impl DefaultKey {
    #[cfg(not(feature = "axum"))]
    pub(super) fn of(&self, parts: &mut Parts) -> Result<Keys, KeyError> {
        key_of_path(parts)
    }

    #[cfg(feature = "axum")]
    pub(super) fn of(&self, parts: &mut Parts) -> Result<Keys, KeyError> {
        let writes = !parts.method.is_safe();
        let Some((route, keys)) = super::param::key_of_route(parts) else {
            if self.is_new("") {
                tracing::warn!(
                    "a request that no axum route has matched is locked by its path: choose `key::path()` if that is meant, or \
                     add the layer to the routes"
                );
            }
            return key_of_path(parts);
        };
        if writes && !route.contains('{') && self.is_new(route) {
            tracing::warn!(
                route,
                "a route without parameters is one lock, or one for each tenant: its requests wait for each other in all \
                 processes. Choose a key, or `key::path()` if that is meant"
            );
        }
        keys
    }

    /// Whether the log has not warned of `route`.
    #[cfg(feature = "axum")]
    fn is_new(&self, route: &str) -> bool {
        let mut warned = self.warned.lock();
        !warned.contains(route) && warned.insert(route.to_owned())
    }
}
