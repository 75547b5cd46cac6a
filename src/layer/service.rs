//! The services of both layers, and their future.

use std::pin::Pin;

use http::Response;

use super::body::ResponseBody;
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
                Box::pin($crate::layer::serve(
                    self.layer.clone(),
                    self.inner.clone(),
                    request,
                ))
            }
        }
    };
}

pub(crate) use service;

/// The future of [`DistributedLock`](super::DistributedLock) and [`Idempotency`](crate::idempotency::Idempotency).
///
/// Nothing is acquired before the first poll. Dropping it at any point releases the lock, except with
/// [`OnCancel::RunToCompletion`]. The record of a handler that has ended may be stored even then.
pub type ResponseFuture<R, E> =
    Pin<Box<dyn Future<Output = Result<Response<ResponseBody<R>>, E>> + Send>>;
