//! The services of both layers, and their future.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::body::ResponseBody;
use super::serve::{FinalResponse, Protocol, serve};
#[cfg(doc)]
use super::settings::OnCancel;

/// Declares the service `$Service` of the layer `$Layer`, which is a [`Protocol`](super::serve::Protocol).
macro_rules! service {
    ($(#[$doc:meta])* $Service:ident $([const $Const:ident = $default:literal])? of $Layer:ty) => {
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub struct $Service<S $(, const $Const: bool = $default)?> {
            inner: S,
            layer: $Layer,
        }

        impl<S $(, const $Const: bool)?> $Service<S $(, $Const)?> {
            /// Puts `inner` behind `layer`, as [`Layer::layer`](tower_layer::Layer::layer) does.
            pub fn new(inner: S, layer: $Layer) -> Self {
                Self { inner, layer }
            }
        }

        impl<S $(, const $Const: bool)?> tower_layer::Layer<S> for $Layer {
            type Service = $Service<S $(, $Const)?>;

            fn layer(&self, inner: S) -> Self::Service {
                $Service::new(inner, self.clone())
            }
        }

        impl<S, B, R $(, const $Const: bool)?> tower_service::Service<http::Request<B>>
            for $Service<S $(, $Const)?>
        where
            S: tower_service::Service<http::Request<B>, Response = http::Response<R>>
                + Clone
                + Send
                + 'static,
            S::Future: Send + 'static,
            S::Error: Send + 'static,
            $Layer: $crate::layer::Protocol<B, R>,
            B: Send + 'static,
            R: http_body::Body + Send + 'static,
        {
            type Response = http::Response<$crate::layer::ResponseBody<R>>;
            type Error = S::Error;
            type Future = $crate::layer::ResponseFuture<R, S::Error>;

            /// Always ready, because a request that waits for its lock must not occupy the inner service. The inner service is
            /// made ready for each request after the grant.
            fn poll_ready(
                &mut self,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Result<(), S::Error>> {
                std::task::Poll::Ready(Ok(()))
            }

            fn call(&mut self, request: http::Request<B>) -> Self::Future {
                $crate::layer::ResponseFuture::new(
                    self.layer.clone(),
                    self.inner.clone(),
                    request,
                )
            }
        }
    };
}

pub(crate) use service;

/// The future of [`DistributedLock`](super::DistributedLock) and [`Idempotency`](crate::idempotency::Idempotency).
///
/// Nothing is acquired before the first poll. Dropping it at any point releases the lock, except with
/// [`OnCancel::RunToCompletion`]. The record of a handler that has ended may be stored even then.
pub struct ResponseFuture<R, E> {
    serving: Pin<Box<dyn Future<Output = FinalResponse<R, E>> + Send>>,
}

impl<R, E> ResponseFuture<R, E> {
    pub(crate) fn new<S, L, B>(layer: L, inner: S, request: Request<B>) -> Self
    where
        S: Service<Request<B>, Response = Response<R>, Error = E> + Send + 'static,
        S::Future: Send + 'static,
        E: Send + 'static,
        L: Protocol<B, R>,
        B: Send + 'static,
        R: Body + Send + 'static,
    {
        Self {
            serving: Box::pin(serve(layer, inner, request)),
        }
    }
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
