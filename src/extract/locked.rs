use std::ops::Deref;

use axum::extract::{FromRef, FromRequest, FromRequestParts, Request};
use axum::response::{IntoResponse, Response};
use http::request::Parts;

use super::owner;
use crate::client::{LockClient, LockRequest};
use crate::guard::LockGuard;
use crate::key::route_of;
use crate::layer::{MAX_HOLD, Rejection, WAIT};
use crate::lock::Owner;
use crate::telemetry::Route;

/// Extracts a value, and locks the key that it names.
///
/// `T` is any axum extractor that dereferences to a [`Lockable`], as `Path`, `Json`, `Query` and `Extension` do, or is one
/// itself. The [`LockClient`] comes from the router's state. The lock belongs to the request: it joins a hold that the layer
/// or another extractor has already.
///
/// As in a [`DistributedLockLayer`](crate::DistributedLockLayer), it waits up to 10 s and is held for up to 5 min (or its lease, if
/// that is longer), unless its [`LockRequest`] says otherwise.
///
/// **Extractors run in the order of the arguments, so one that follows `Locked<Path<_>>` reads the request's body under the lock**, and a
/// slow sender holds it for those 5 min. `Locked<Json<_>>` reads the body first, and so does the layer. A handler with another
/// body takes the lock itself, as `replace` does below.
///
/// **Two `Locked` in one signature hold the first key while they wait for the second**, so two requests that name them in another order
/// wait for each other until a wait is over. Extract one [`Lockable`] instead, which requests both keys by
/// [`locks.lock_all(…)`](LockClient::lock_all).
///
/// The handler owns the guard. **A handler that does not await [`LockGuard::release`] is answered unconfirmed**: its guard releases
/// when it is dropped, in the background, and the response goes out without a confirmation. A layer confirms every response.
///
/// ```
/// use axum::extract::{Path, State};
/// use axum::routing::post;
/// use axum::{Json, Router};
/// use serde::Deserialize;
/// use tower_distributed_lock::extract::{Lockable, Locked};
/// use tower_distributed_lock::{LockClient, LockRequest, MemoryStore, Owner, Rejection, Resource};
///
/// const ORDERS: Resource = Resource::new("lock:order");
///
/// #[derive(Deserialize)]
/// struct OrderId(u64);
///
/// impl Lockable for OrderId {
///     fn lock(&self, locks: &LockClient) -> LockRequest {
///         locks.lock(ORDERS.id(self.0)) // in `Write` mode
///     }
/// }
///
/// async fn pay(Locked(Path(order), guard): Locked<Path<OrderId>>) -> Result<String, Rejection> {
///     let receipt = format!("order {} is paid", order.0);
///     guard.release().await?;
///     Ok(receipt)
/// }
///
/// async fn replace(
///     State(locks): State<LockClient>,
///     owner: Owner,
///     Path(order): Path<OrderId>,
///     Json(lines): Json<Vec<String>>,
/// ) -> Result<(), Rejection> {
///     let guard = order.lock(&locks).owner(&owner).await?; // the body is here already
///     println!("order {} has {} lines", order.0, lines.len());
///     Ok(guard.release().await?)
/// }
///
/// let app: Router = Router::new()
///     .route("/orders/{id}", post(replace))
///     .route("/orders/{id}/payment", post(pay))
///     .with_state(LockClient::new(MemoryStore::new()));
/// ```
#[derive(Debug)]
pub struct Locked<T>(pub T, pub LockGuard);

/// A value that names a lock.
///
/// Implement it for the value itself (`OrderId`, `Transfer`); types that dereference to it, such as `Path<OrderId>`, are then
/// lockable.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say what to lock",
    note = "implement `Lockable` for it, or for the type inside of `Path`, `Json`, `Query` or `Extension`"
)]
pub trait Lockable {
    /// Makes the request to `locks`, with key or keys, mode, wait and lease.
    ///
    /// If a layer locks the same resource, share a [`Resource`](crate::Resource), or lock the same name in a mode of the same
    /// family: [`Read`](crate::LockMode::Read) or [`Write`](crate::LockMode::Write) beside a layer with its default mode. An
    /// exclusive and a read-write lock on one key are refused with [`LockError::Conflict`](crate::LockError::Conflict), which
    /// is a 500.
    fn lock(&self, locks: &LockClient) -> LockRequest;
}

impl<E> Lockable for E
where
    E: Deref,
    E::Target: Lockable,
{
    fn lock(&self, locks: &LockClient) -> LockRequest {
        (**self).lock(locks)
    }
}

impl<S, T> FromRequestParts<S> for Locked<T>
where
    T: FromRequestParts<S> + Lockable + Send,
    LockClient: FromRef<S>,
    S: Send + Sync,
{
    type Rejection = LockedRejection<T::Rejection>;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let asker = (owner(parts), route_of(parts));
        let extracted = T::from_request_parts(parts, state)
            .await
            .map_err(LockedRejection::Extractor)?;
        lock(extracted, asker, state).await
    }
}

impl<S, T> FromRequest<S> for Locked<T>
where
    T: FromRequest<S> + Lockable + Send,
    LockClient: FromRef<S>,
    S: Send + Sync,
{
    type Rejection = LockedRejection<T::Rejection>;

    async fn from_request(request: Request, state: &S) -> Result<Self, Self::Rejection> {
        let (mut parts, body) = request.into_parts();
        let asker = (owner(&mut parts), route_of(&parts));
        let extracted = T::from_request(Request::from_parts(parts, body), state)
            .await
            .map_err(LockedRejection::Extractor)?;
        lock(extracted, asker, state).await
    }
}

async fn lock<S, T, R>(
    extracted: T,
    (owner, route): (Owner, Route),
    state: &S,
) -> Result<Locked<T>, LockedRejection<R>>
where
    T: Lockable,
    LockClient: FromRef<S>,
{
    let request = extracted.lock(&LockClient::from_ref(state));
    let takes_permits = request.takes_permits();
    let request = request.or_limits(WAIT, MAX_HOLD);
    match request.owner(&owner).route(route).acquire().await {
        Ok(guard) => Ok(Locked(extracted, guard)),
        Err(error) => Err(LockedRejection::Lock(Rejection::of(error, takes_permits))),
    }
}

/// Why the extraction of a [`Locked`] failed.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
#[non_exhaustive]
pub enum LockedRejection<R> {
    /// The inner extractor failed; nothing was locked.
    Extractor(R),
    /// The lock was not granted.
    Lock(Rejection),
}

impl<R: IntoResponse> IntoResponse for LockedRejection<R> {
    fn into_response(self) -> Response {
        match self {
            Self::Extractor(rejection) => rejection.into_response(),
            Self::Lock(rejection) => rejection.into_response(),
        }
    }
}
