//! The skeleton of both layers: the service, its future, and the steps of a request.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower::util::Oneshot;
use tower_service::Service;
use tracing::Instrument;

use super::body::{self, ResponseBody};
use super::confirm::{Confirmation, Unconfirmed};
use super::overload_delay::OverloadDelay;
use super::rejection::Refusal;
use super::respond::Responder;
use super::settings::OnCancel;
use crate::client::{self, LockClient};
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::key::RequestBody;

/// A layer that serves requests with the body `B` under a lock. The responses of the inner service have the body `R`.
pub(crate) trait Protocol<B, R>: Send + Sync + 'static {
    /// The data that the end of a request needs, besides the guard.
    type Terms: Send + Sync + 'static;

    /// What the layer makes of a handler's response while the lock is held.
    type Handled: Send;

    /// Decides how to treat a request, and takes its lock.
    fn admit(
        &self,
        parts: &mut Parts,
        body: B,
    ) -> impl Future<Output = Result<Admission<B, Self::Terms>, Refusal>> + Send;

    /// Drives `calling`, which answers a request, to what the layer makes of its response, while the lock is held.
    fn handle<E: Send>(
        &self,
        claim: &Claim<Self::Terms>,
        calling: impl Future<Output = Result<Response<R>, E>> + Send,
    ) -> impl Future<Output = Handling<Self::Handled, E>> + Send;

    /// Releases the lock, and makes the response to a request with `method`.
    fn finish<E: Send>(
        &self,
        claim: Claim<Self::Terms>,
        method: &Method,
        handled: Handling<Self::Handled, E>,
    ) -> impl Future<Output = Result<Served<R, E>, Unconfirmed>> + Send;

    fn client(&self) -> &LockClient;
    fn responder(&self) -> &Responder;
    fn on_cancel(&self) -> OnCancel;

    /// Delays the refusals of an overloaded process, for the returned time at most.
    fn overload_delay(&self) -> (&OverloadDelay, Duration);

    /// The refusal that replaces `refusal`.
    fn refused(&self, refusal: Refusal) -> Refusal {
        refusal
    }
}

/// How a layer treats a request.
pub(crate) enum Admission<B, T> {
    /// The inner service serves it without a lock.
    Pass(B),
    /// The layer has the answer already.
    Answer(Response<Bytes>),
    /// The inner service serves it under a lock.
    Run(B, Claim<T>),
}

/// The right to serve a request.
pub(crate) struct Claim<T> {
    pub(crate) guard: LockGuard,
    pub(crate) terms: T,
}

/// What a handler has led to: a response, an error of the inner service, or the loss of its lock.
pub(crate) type Handling<H, E> = Result<Result<H, E>, Unconfirmed>;

/// A response, or the error of the inner service.
pub(crate) type Served<R, E> = Result<Response<ResponseBody<R>>, E>;

/// A service behind a layer of this crate: [`DistributedLock`](super::DistributedLock) or
/// [`Idempotency`](crate::idempotency::Idempotency).
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

impl<S: Clone, L> Clone for Locking<S, L> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            layer: self.layer.clone(),
        }
    }
}

impl<S: fmt::Debug, L: fmt::Debug> fmt::Debug for Locking<S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locking")
            .field("inner", &self.inner)
            .field("layer", &self.layer)
            .finish()
    }
}

/// The future of [`Locking`].
///
/// Nothing is acquired before the first poll. Dropping it at any point releases the lock and records nothing, except
/// with [`OnCancel::RunToCompletion`].
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

/// Serves a request, from its head to its response.
///
/// The future is small: what it captures stays where it is, the rare and large futures are boxed, and those that come one
/// after the other share their room.
fn serve<S, L, B, R>(
    layer: Arc<L>,
    inner: S,
    request: Request<B>,
) -> Pin<Box<dyn Future<Output = Served<R, S::Error>> + Send>>
where
    S: Service<Request<B>, Response = Response<R>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    L: Protocol<B, R>,
    B: Send + 'static,
    R: Body + Send + 'static,
{
    let (mut parts, body) = request.into_parts();
    Box::pin(async move {
        let (body, claim) = match layer.admit(&mut parts, body).await {
            Ok(Admission::Run(body, claim)) => (body, claim),
            Ok(Admission::Pass(body)) => {
                let request = Request::from_parts(parts, body);
                let response = Oneshot::new(inner, request).await?;
                return Ok(response.map(ResponseBody::handlers));
            }
            Ok(Admission::Answer(response)) => return Ok(response.map(whole)),
            Err(refusal) => return Ok(refuse(&*layer, refusal, &mut parts).await),
        };
        let head = layer.responder().head(&parts);
        let request = Request::from_parts(parts, body);
        let finished = match layer.on_cancel() {
            OnCancel::Drop => {
                let calling = Oneshot::new(inner, request);
                let handled = handle(&*layer, &claim, calling).await;
                layer.finish(claim, &head.method, handled).await
            }
            OnCancel::RunToCompletion => {
                let method = head.method.clone();
                let finished = in_task(run(layer.clone(), inner, request, claim, method));
                // `None`: the runtime has ended.
                Box::pin(finished).await.unwrap_or(Err(Unconfirmed))
            }
        };
        finished.unwrap_or_else(|Unconfirmed| {
            let refusal = layer.refused(LockError::Lost.into());
            Ok(layer.responder().refuse(refusal, &head))
        })
    })
}

/// Answers a request that is not served.
fn refuse<L, B, R>(
    layer: &L,
    refusal: Refusal,
    parts: &mut Parts,
) -> impl Future<Output = Response<ResponseBody<R>>> + Send
where
    L: Protocol<B, R>,
{
    Box::pin(async move {
        let refusal = layer.refused(refusal);
        if OverloadDelay::applies_to(&refusal) {
            // The key may be in the body.
            parts.extensions.remove::<RequestBody>();
            let (delay, most) = layer.overload_delay();
            delay.pass(most).await;
        }
        let responder = layer.responder();
        responder.refuse(refusal, &responder.head(parts))
    })
}

/// Serves a request under its lock, to the end.
async fn run<S, L, B, R>(
    layer: Arc<L>,
    inner: S,
    request: Request<B>,
    claim: Claim<L::Terms>,
    method: Method,
) -> Result<Served<R, S::Error>, Unconfirmed>
where
    S: Service<Request<B>, Response = Response<R>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    L: Protocol<B, R>,
    B: Send + 'static,
    R: Body + Send + 'static,
{
    let calling = Oneshot::new(inner, request);
    let handled = handle(&*layer, &claim, calling).await;
    layer.finish(claim, &method, handled).await
}

/// Calls the inner service while the lock is held. The result borrows `claim`, so that a handler never outlives its lock.
fn handle<L, B, R, E: Send>(
    layer: &L,
    claim: &Claim<L::Terms>,
    calling: impl Future<Output = Result<Response<R>, E>> + Send,
) -> impl Future<Output = Handling<L::Handled, E>> + Send
where
    L: Protocol<B, R>,
    R: Send + 'static,
{
    let guard = &claim.guard;
    let handling = layer.handle(claim, calling);
    client::around(layer.client().id(), guard.handle(), handling).instrument(guard.span())
}

/// Drives `work` to its end in a task, even if the caller is dropped. Panics are forwarded; `None`: the runtime has
/// ended.
async fn in_task<T>(work: impl Future<Output = T> + Send + 'static) -> Option<T>
where
    T: Send + 'static,
{
    match tokio::spawn(work.in_current_span()).await {
        Ok(result) => Some(result),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => None,
    }
}

/// Drives `handling` until it is done, or the lock is lost.
///
/// The lock is watched after the handler's first wait: a handler that never waits needs no timer, and the confirmation
/// finds an earlier loss.
pub(crate) fn unless_lost<F: Future>(guard: &LockGuard, handling: F) -> UnlessLost<'_, F> {
    UnlessLost {
        handling,
        guard: Some(guard),
        lost: None,
    }
}

/// Drives `handling` to its end, whether the lock is lost or not.
pub(crate) fn even_if_lost<'a, F: Future>(handling: F) -> UnlessLost<'a, F> {
    UnlessLost {
        handling,
        guard: None,
        lost: None,
    }
}

pin_project! {
    /// The future of [`unless_lost`].
    pub(crate) struct UnlessLost<'a, F> {
        #[pin]
        handling: F,
        // `None`: the lock is not watched, or it is watched already.
        guard: Option<&'a LockGuard>,
        // Boxed, because it is large, and a handler that never waits is served without it.
        lost: Option<Pin<Box<dyn Future<Output = ()> + Send + 'a>>>,
    }
}

impl<F: Future> Future for UnlessLost<'_, F> {
    type Output = Result<F::Output, Unconfirmed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Some(lost) = this.lost
            && lost.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(Unconfirmed));
        }
        if let Poll::Ready(done) = this.handling.poll(cx) {
            return Poll::Ready(Ok(done));
        }
        let Some(guard) = this.guard.take() else {
            return Poll::Pending;
        };
        let watch = this.lost.insert(Box::pin(guard.lost()));
        watch.as_mut().poll(cx).map(|()| Err(Unconfirmed))
    }
}

/// Puts the confirmation into the response.
pub(crate) fn confirmed<R, E>(served: Served<R, E>, by: Confirmation) -> Served<R, E> {
    served.map(|mut response| {
        response.extensions_mut().insert(by);
        response
    })
}

/// A complete body.
pub(crate) fn whole<R>(body: Bytes) -> ResponseBody<R> {
    ResponseBody::local(body::whole(body))
}

#[cfg(all(test, feature = "axum"))]
mod tests {
    use axum::Router;
    use axum::body::Body;

    use super::*;
    use crate::MemoryStore;
    use crate::layer::DistributedLockLayer;

    /// Each request has one, on the heap.
    #[tokio::test]
    async fn the_future_of_a_request_is_small() {
        let locks = LockClient::new(MemoryStore::new());
        let layer = DistributedLockLayer::new(locks);
        let mut service = tower_layer::Layer::layer(&layer, Router::<()>::new());
        let response = service.call(Request::new(Body::empty()));
        let size = size_of_val(&*response.serving);
        println!("{size} bytes");
        assert!(size <= 1280, "{size} bytes");
    }
}
