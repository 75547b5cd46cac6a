//! The skeleton of both layers: the service, its future, and the steps of a request.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response};
use http_body::Body;
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
    type Terms: Send + 'static;

    /// Decides how to treat a request, and takes its lock.
    fn admit(
        &self,
        parts: &mut Parts,
        body: B,
    ) -> impl Future<Output = Result<Admission<B, Self::Terms>, Refusal>> + Send;

    /// Drives `handling`, which answers a request to `method`, to its response, and releases the lock.
    fn finish<E: Send>(
        &self,
        claim: Claim<Self::Terms>,
        method: Method,
        handling: impl Future<Output = Result<Response<R>, E>> + Send,
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
            serving: Box::pin(serve(self.layer.clone(), self.inner.clone(), request)),
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
async fn serve<S, L, B, R>(layer: Arc<L>, inner: S, request: Request<B>) -> Served<R, S::Error>
where
    S: Service<Request<B>, Response = Response<R>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    L: Protocol<B, R>,
    B: Send + 'static,
    R: Body + Send + 'static,
{
    let (mut parts, body) = request.into_parts();
    let admission = layer.admit(&mut parts, body).await;
    let responder = layer.responder();
    let (body, claim) = match admission {
        Ok(Admission::Run(body, claim)) => (body, claim),
        Ok(Admission::Pass(body)) => {
            let response = call(inner, Request::from_parts(parts, body)).await?;
            return Ok(response.map(ResponseBody::handlers));
        }
        Ok(Admission::Answer(response)) => return Ok(response.map(whole)),
        Err(refusal) => {
            let refusal = layer.refused(refusal);
            if OverloadDelay::applies_to(&refusal) {
                // The key may be in the body.
                parts.extensions.remove::<RequestBody>();
                let (delay, most) = layer.overload_delay();
                delay.pass(most).await;
            }
            return Ok(responder.refuse(refusal, &responder.head(&parts)));
        }
    };
    let head = responder.head(&parts);
    let request = Request::from_parts(parts, body);
    let finished = match layer.on_cancel() {
        OnCancel::Drop => run(layer.clone(), inner, request, claim).await,
        OnCancel::RunToCompletion => {
            let finished = in_task(run(layer.clone(), inner, request, claim)).await;
            // `None`: the runtime has ended.
            finished.unwrap_or(Err(Unconfirmed))
        }
    };
    finished.unwrap_or_else(|Unconfirmed| {
        let refusal = layer.refused(LockError::Lost.into());
        Ok(responder.refuse(refusal, &head))
    })
}

/// Serves a request under its lock.
///
/// Each large future stays where it is created, and the next one gets it [`Placed`]. A future that took it by value would
/// reserve room for a copy.
async fn run<S, L, B, R>(
    layer: Arc<L>,
    inner: S,
    request: Request<B>,
    claim: Claim<L::Terms>,
) -> Result<Served<R, S::Error>, Unconfirmed>
where
    S: Service<Request<B>, Response = Response<R>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    L: Protocol<B, R>,
    B: Send + 'static,
    R: Body + Send + 'static,
{
    let method = request.method().clone();
    let (span, lock) = (claim.guard.span(), claim.guard.handle());
    let handling = pin!(Some(call(inner, request)));
    let finishing = pin!(Some(layer.finish(claim, method, Placed(handling))));
    let mut running = pin!(client::around(layer.client().id(), lock, Placed(finishing)));
    match span.is_disabled() {
        true => running.as_mut().await,
        false => running.as_mut().instrument(span).await,
    }
}

/// A future that is stored elsewhere. It is dropped when this is, such as the handler before its lock.
struct Placed<'a, F>(Pin<&'a mut Option<F>>);

impl<F: Future> Future for Placed<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let future = self.0.as_mut().as_pin_mut();
        future
            .expect("the future is there until this is dropped")
            .poll(cx)
    }
}

impl<F> Drop for Placed<'_, F> {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

/// Makes the service ready and calls it: it was not ready while the request waited.
async fn call<S, B>(mut inner: S, request: Request<B>) -> Result<S::Response, S::Error>
where
    S: Service<Request<B>>,
{
    poll_fn(|cx| inner.poll_ready(cx)).await?;
    inner.call(request).await
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
pub(crate) async fn unless_lost<T>(
    guard: &LockGuard,
    handling: impl Future<Output = T>,
) -> Result<T, Unconfirmed> {
    let mut handling = pin!(handling);
    // Boxed, because it is large, and a handler that never waits is served without it.
    let mut lost: Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>> = None;
    poll_fn(|cx| {
        if let Some(lost) = &mut lost
            && lost.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(Unconfirmed));
        }
        if let Poll::Ready(done) = handling.as_mut().poll(cx) {
            return Poll::Ready(Ok(done));
        }
        if lost.is_some() {
            return Poll::Pending;
        }
        let watch = lost.insert(Box::pin(guard.lost()));
        watch.as_mut().poll(cx).map(|()| Err(Unconfirmed))
    })
    .await
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
