use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::DistributedLockLayer;
use super::body::ResponseBody;
use super::future::ResponseFuture;
use super::intake::{Intake, Streamed};
use crate::key::{DefaultKey, KeyExtractor};

/// Serves each request under its lock. See [`DistributedLockLayer`].
pub struct DistributedLock<S, K = DefaultKey, I = Streamed> {
    inner: S,
    layer: Arc<DistributedLockLayer<K, I>>,
}

impl<S, K, I> DistributedLock<S, K, I> {
    pub(super) fn new(inner: S, layer: DistributedLockLayer<K, I>) -> Self {
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

impl<S, K, I, B, R> Service<Request<B>> for DistributedLock<S, K, I>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    K: KeyExtractor + 'static,
    I: Intake<B> + 'static,
    B: Send + 'static,
    R: Body + Send + 'static,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<R, S::Error>;

    /// Always ready: a request that waits for its lock must not occupy the service inside. That is made ready, for each
    /// request, after the grant.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        ResponseFuture::new(self.layer.clone(), self.inner.clone(), request)
    }
}

impl<S: Clone, K, I> Clone for DistributedLock<S, K, I> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            layer: self.layer.clone(),
        }
    }
}

impl<S: fmt::Debug, K, I> fmt::Debug for DistributedLock<S, K, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedLock")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
