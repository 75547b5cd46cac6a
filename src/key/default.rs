use std::future::{Future, ready};

use http::request::Parts;

use super::path::key_of_path;
use super::{KeyError, KeyExtractor, Keys};

/// What a layer locks unless told otherwise.
///
/// Inside an axum route: the route's template and every decoded parameter, in order, so that `/orders/1` and `/orders/%31`
/// are one. Elsewhere (around a whole router, in a fallback, without axum): what [`path`](super::path()) says.
///
/// **Wrong where two spellings of a parameter are one thing to the handler** (`1` and `01`), and **where several routes
/// lead to one resource**: `/orders/{id}` and `/orders/{id}/refunds` are two keys. A route without parameters is one key:
/// each `POST /orders` waits for the one before.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct DefaultKey;

impl KeyExtractor for DefaultKey {
    fn extract(&self, parts: &mut Parts) -> impl Future<Output = Result<Keys, KeyError>> + Send {
        #[cfg(feature = "axum")]
        if let Some(keys) = super::param::key_of_route(parts) {
            return ready(keys);
        }
        ready(key_of_path(parts))
    }
}
