use std::future::ready;
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
/// DistributedLockLayer::new(locks).key(key::extract(|Path(id): Path<u64>| ORDERS.id(id)))
/// # ;
/// ```
///
/// The closure may be async, for a key that must be looked up:
///
/// ```
/// # use tower_distributed_lock::{DistributedLockLayer, LockClient, MemoryStore, Resource, key};
/// # use axum::extract::Path;
/// # const ORDERS: Resource = Resource::new("lock:order");
/// # async fn id_of(slug: &str) -> Option<u64> { slug.len().try_into().ok() }
/// # let locks = LockClient::new(MemoryStore::new());
/// DistributedLockLayer::new(locks)
///     .key(key::extract(async |Path(slug): Path<String>| Some(ORDERS.id(id_of(&slug).await?))))
/// # ;
/// ```
///
/// Other code that takes the same key, such as a [`Locked`](crate::extract::Locked) or a job, must take it in a mode of the same
/// family: share a [`Resource`](crate::Resource).
///
/// **Wrong where the handler extracts another value** than the one that is named here, and on a router whose routes have
/// other parameters: `Path<u64>` rejects a route with two.
pub fn extract<E, F, M>(name: F) -> impl KeyExtractor + Clone
where
    E: FromRequestParts<()> + Send + 'static,
    F: KeyFn<E, M> + Clone,
    M: 'static,
{
    extract_with_state((), name)
}

/// Runs an axum extractor with the state that it needs, and makes a name of the value: see [`extract`]. A layer has no access to the
/// router's state.
pub fn extract_with_state<S, E, F, M>(state: S, name: F) -> impl KeyExtractor + Clone
where
    S: Clone + Send + Sync + 'static,
    E: FromRequestParts<S> + Send + 'static,
    F: KeyFn<E, M> + Clone,
    M: 'static,
{
    Extract {
        name,
        state,
        extractor: PhantomData,
    }
}

/// A closure that makes a name of the extracted value, at once or by a future. `M` says which, and is never named.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not make a key of a `{E}`",
    note = "use a closure with the type of its argument, such as `|Path(id): Path<u64>| …`, that returns a `ResourceKey`, a \
            `LockKey`, or an `Option`, `Vec`, array or `Result` of those, or a future of one"
)]
pub trait KeyFn<E, M>: Send + Sync + 'static {
    /// The keys of the value.
    fn name(&self, extracted: E) -> impl Future<Output = Result<Keys, KeyError>> + Send;
}

/// The closure returns the name.
#[derive(Debug)]
pub enum AtOnce {}

/// The closure returns a future of the name.
#[derive(Debug)]
pub enum ByFuture {}

impl<E, F, R> KeyFn<E, AtOnce> for F
where
    F: Fn(E) -> R + Send + Sync + 'static,
    R: IntoKeys,
{
    fn name(&self, extracted: E) -> impl Future<Output = Result<Keys, KeyError>> + Send {
        ready(self(extracted).into_keys())
    }
}

impl<E, F, R> KeyFn<E, ByFuture> for F
where
    F: Fn(E) -> R + Send + Sync + 'static,
    R: Future<Output: IntoKeys> + Send,
{
    fn name(&self, extracted: E) -> impl Future<Output = Result<Keys, KeyError>> + Send {
        let named = self(extracted);
        async move { named.await.into_keys() }
    }
}

struct Extract<E, F, M, S> {
    name: F,
    state: S,
    extractor: PhantomData<fn() -> (E, M)>,
}

impl<E, F, M, S> KeyExtractor for Extract<E, F, M, S>
where
    E: FromRequestParts<S> + Send + 'static,
    F: KeyFn<E, M>,
    M: 'static,
    S: Send + Sync + 'static,
{
    async fn extract(&self, parts: &mut Parts) -> Result<Keys, KeyError> {
        let extracted = E::from_request_parts(parts, &self.state).await;
        let extracted =
            extracted.map_err(|rejection| KeyError::response(rejection.into_response()))?;
        self.name.name(extracted).await
    }
}

impl<E, F: Clone, M, S: Clone> Clone for Extract<E, F, M, S> {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            state: self.state.clone(),
            extractor: PhantomData,
        }
    }
}
