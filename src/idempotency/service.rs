use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::IdempotencyLayer;
use super::future::ResponseFuture;
use crate::error::BoxError;
use crate::key::{IdempotencyKey, KeyExtractor};
use crate::layer::ResponseBody;

/// Runs each request once per idempotency key. See [`IdempotencyLayer`].
pub struct Idempotency<S, K = IdempotencyKey> {
    inner: S,
    layer: Arc<IdempotencyLayer<K>>,
}

impl<S, K> Idempotency<S, K> {
    pub(super) fn new(inner: S, layer: IdempotencyLayer<K>) -> Self {
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

impl<S, K, B, R> Service<Request<B>> for Idempotency<S, K>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    K: KeyExtractor + 'static,
    B: Body<Data: Send> + From<Bytes> + Send + 'static,
    R: Body<Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<R, S::Error>;

    /// Always ready: a request that waits for another must not occupy the service inside, which is made ready only for
    /// requests that run.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        ResponseFuture::new(self.layer.clone(), self.inner.clone(), request)
    }
}

impl<S: Clone, K> Clone for Idempotency<S, K> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            layer: self.layer.clone(),
        }
    }
}

impl<S: fmt::Debug, K> fmt::Debug for Idempotency<S, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotency")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
