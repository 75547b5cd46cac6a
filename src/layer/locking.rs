//! The service of both layers, and its future.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::body::ResponseBody;
use super::serve::{Protocol, Served, serve};
#[cfg(doc)]
use super::settings::OnCancel;

/// A service behind a layer of this crate: [`DistributedLock`](super::DistributedLock) or
/// [`Idempotency`](crate::idempotency::Idempotency).
#[derive(Debug, Clone)]
pub struct Locking<S, L> {
    inner: S,
    layer: Arc<L>,
}

impl<S, L> Locking<S, L> {
    pub(crate) fn new(inner: S, layer: L) -> Self {
        Self {
            inner,
            layer: Arc::new(layer),
        }
    }

    /// The service inside.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The service inside.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The service inside.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, L, B, R> Service<Request<B>> for Locking<S, L>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    L: Protocol<B, R>,
    B: Send + 'static,
    R: Body + Send + 'static,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<R, S::Error>;

    /// Always ready, because a request that waits for its lock must not occupy the inner service. The inner service is
    /// made ready for each request after the grant.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        ResponseFuture {
            serving: serve(self.layer.clone(), self.inner.clone(), request),
        }
    }
}

/// The future of [`Locking`].
///
/// Nothing is acquired before the first poll. Dropping it at any point releases the lock, except with
/// [`OnCancel::RunToCompletion`]. The record of a handler that has ended may be stored nevertheless.
pub struct ResponseFuture<R, E> {
    serving: Pin<Box<dyn Future<Output = Served<R, E>> + Send>>,
}

impl<R, E> Future for ResponseFuture<R, E> {
    type Output = Result<Response<ResponseBody<R>>, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.serving.as_mut().poll(cx)
    }
}

impl<R, E> fmt::Debug for ResponseFuture<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "axum"))]
mod tests {
    use axum::Router;
    use axum::body::Body;

    use super::*;
    use crate::layer::DistributedLockLayer;
    use crate::{LockClient, MemoryStore};

    /// Each request has one, on the heap.
    #[tokio::test]
    async fn the_future_of_a_request_is_small() {
        let locks = LockClient::new(MemoryStore::new());
        let layer = DistributedLockLayer::new(locks);
        let mut service = tower_layer::Layer::layer(&layer, Router::<()>::new());
        let response = service.call(Request::new(Body::empty()));
        let size = size_of_val(&*response.serving);
        println!("{size} bytes");
        assert!(size <= 1032, "{size} bytes");
    }
}
