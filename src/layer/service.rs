use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::DistributedLockLayer;
use super::body::ResponseBody;
use super::body_mode::{BodyMode, DefaultBody};
use super::future::ResponseFuture;
use crate::key::{DefaultKey, KeyExtractor};

/// Serves each request under its lock. See [`DistributedLockLayer`].
pub struct DistributedLock<S, K = DefaultKey, M = DefaultBody> {
    inner: S,
    layer: Arc<DistributedLockLayer<K, M>>,
}

impl<S, K, M> DistributedLock<S, K, M> {
    pub(super) fn new(inner: S, layer: DistributedLockLayer<K, M>) -> Self {
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

impl<S, K, M, B, R> Service<Request<B>> for DistributedLock<S, K, M>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    K: KeyExtractor + 'static,
    M: BodyMode<B>,
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

impl<S: Clone, K, M> Clone for DistributedLock<S, K, M> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            layer: self.layer.clone(),
        }
    }
}

impl<S: fmt::Debug, K, M> fmt::Debug for DistributedLock<S, K, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedLock")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
