use std::fmt;
use std::marker::PhantomData;

use axum::extract::FromRequestParts;
use axum::response::IntoResponse;
use http::request::Parts;

use super::{IntoKeys, KeyError, KeyExtractor, Keys};

/// Runs an axum extractor and makes a name of the value.
///
/// The safest key extractor: two spellings that the handler's extractor reads as one value are one key. If the extractor
/// rejects the request, its own response is the answer. Several extractors go in a tuple. An extractor of the body, such as `Json`, is
/// none of them, because the handler reads the body: use [`json_field`](super::json_field) or [`body`](super::body).
///
/// ```
/// # use tower_distributed_lock::{DistributedLockLayer, LockClient, MemoryStore};
/// use axum::extract::Path;
/// use tower_distributed_lock::{Resource, key};
///
/// # let locks = LockClient::new(MemoryStore::new());
/// const ORDERS: Resource = Resource::new("lock:order");
///
/// DistributedLockLayer::new(locks).key(key::extract::<Path<u64>, _>(|Path(id)| ORDERS.id(id)))
/// # ;
/// ```
///
/// Other code that takes the same key, such as a [`Locked`](crate::Locked) or a job, must take it in a mode of the same
/// family: share a [`Resource`](crate::Resource).
///
/// **Wrong where the handler extracts another value** than the one that is named here, and on a router whose routes have
/// other parameters: `Path<u64>` rejects a route with two.
pub fn extract<E, F>(name: F) -> Extract<E, F>
where
    F: KeyFn<E>,
{
    Extract {
        name,
        state: (),
        extractor: PhantomData,
    }
}

/// A closure that makes a name of the extracted value.
pub trait KeyFn<E>: Fn(E) -> <Self as KeyFn<E>>::Named {
    /// What it returns.
    type Named: IntoKeys;
}

impl<E, F, R> KeyFn<E> for F
where
    F: Fn(E) -> R,
    R: IntoKeys,
{
    type Named = R;
}

/// See [`extract`].
pub struct Extract<E, F, S = ()> {
    name: F,
    state: S,
    extractor: PhantomData<fn() -> E>,
}

impl<E, F> Extract<E, F> {
    /// Sets the state that the extractor needs. A layer has no access to the router's state.
    pub fn with_state<S>(self, state: S) -> Extract<E, F, S> {
        Extract {
            name: self.name,
            state,
            extractor: self.extractor,
        }
    }
}

impl<E, F, S> KeyExtractor for Extract<E, F, S>
where
    E: FromRequestParts<S> + Send + 'static,
    F: KeyFn<E> + Send + Sync + 'static,
    S: Send + Sync + 'static,
{
    async fn extract(&self, parts: &mut Parts) -> Result<Keys, KeyError> {
        match E::from_request_parts(parts, &self.state).await {
            Ok(extracted) => (self.name)(extracted).into_keys(),
            Err(rejection) => Err(KeyError::response(rejection.into_response())),
        }
    }
}

impl<E, F: Clone, S: Clone> Clone for Extract<E, F, S> {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            state: self.state.clone(),
            extractor: PhantomData,
        }
    }
}

impl<E, F, S> fmt::Debug for Extract<E, F, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extract")
            .field("extractor", &std::any::type_name::<E>())
            .finish_non_exhaustive()
    }
}
