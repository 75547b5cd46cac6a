use std::future::ready;
#[cfg(feature = "axum")]
use std::sync::Arc;
#[cfg(feature = "axum")]
use std::sync::atomic::{AtomicBool, Ordering};

use http::request::Parts;

use super::path::key_of_path;
use super::{KeyError, KeyExtractor, Keys};

/// The default key extractor of a layer.
///
/// Inside an axum route: the route's template and every decoded parameter, in order, so that `/orders/1` and `/orders/%31`
/// are one. Elsewhere (around a whole router, in a fallback, without axum), the key is that of [`path`](super::path()).
///
/// **Wrong where the handler reads two spellings of a parameter as one value** (`1` and `01`, or in `{*path}` `a/b` and `a//b`),
/// and **where several routes lead to one resource**: `/orders/{id}` and `/orders/{id}/refunds` are two keys. A route without parameters is one key:
/// each `POST /orders` waits for the one before. The first request that falls back to its path, in a program that has the
/// feature `axum`, is logged as a warning.
#[derive(Debug, Clone, Default)]
pub struct DefaultKey {
    /// Whether the fallback was logged.
    #[cfg(feature = "axum")]
    warned: Arc<AtomicBool>,
}

impl KeyExtractor for DefaultKey {
    fn extract(&self, parts: &mut Parts) -> impl Future<Output = Result<Keys, KeyError>> + Send {
        ready(self.of(parts))
    }
}

impl DefaultKey {
    pub(super) fn of(&self, parts: &mut Parts) -> Result<Keys, KeyError> {
        #[cfg(feature = "axum")]
        if let Some(keys) = super::param::key_of_route(parts) {
            return keys;
        } else if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "a request that no axum route has matched is locked by its path: choose `key::path()` if that is meant, or \
                 add the layer to the routes"
            );
        }
        key_of_path(parts)
    }
}
