//! The steps of a request, which both layers have.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::Either;
use http::request::Parts;
use http::{Method, Request, Response};
use http_body::Body;
use tower::util::Oneshot;
use tower_service::Service;
use tracing::Instrument;

use super::body::{self, ResponseBody};
use super::confirm::{Confirmation, Unconfirmed};
use super::overload_delay::OverloadDelay;
use super::rejection::Refusal;
use super::serve_settings::ServeSettings;
use super::settings::OnCancel;
use crate::client;
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::key::RequestBody;

/// A layer that serves requests with the body `B` under a lock. The responses of the inner service have the body `R`.
pub(crate) trait Protocol<B, R>: Send + Sync + 'static {
    /// The data that the end of a request needs, besides the guard.
    type Terms: Send + Sync + 'static;

    /// What the layer makes of a handler's response while the lock is held.
    type Handled: Send;

    /// Takes the lock of a request. Returns its body, and the claim.
    fn admit(
        &self,
        parts: &mut Parts,
        body: B,
    ) -> impl Future<Output = Result<(B, Claim<Self::Terms>), Unclaimed<B>>> + Send;

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

    fn settings(&self) -> &ServeSettings;

    /// The refusal that replaces `refusal`.
    fn refused(&self, refusal: Refusal) -> Refusal {
        refusal
    }
}

/// How a layer treats a request for which it holds no lock.
pub(crate) enum Unclaimed<B> {
    /// The inner service serves it.
    Pass(B),
    /// The layer has the answer already.
    Answer(Response<Bytes>),
    /// It is not served.
    Refused(Refusal),
}

impl<B, R: Into<Refusal>> From<R> for Unclaimed<B> {
    fn from(refusal: R) -> Self {
        Self::Refused(refusal.into())
    }
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

/// Serves a request, from its head to its response.
///
/// The future is small, because the allocator keeps blocks of at most 1,032 bytes ready: what it captures stays where it is, the
/// rare and large futures are boxed, and those that come one after the other share their room.
pub(super) fn serve<S, L, B, R>(
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
            Ok(claimed) => claimed,
            Err(Unclaimed::Pass(body)) => {
                let request = Request::from_parts(parts, body);
                let response = Oneshot::new(inner, request).await?;
                return Ok(response.map(ResponseBody::handlers));
            }
            Err(Unclaimed::Answer(response)) => return Ok(response.map(whole)),
            Err(Unclaimed::Refused(refusal)) => {
                return Ok(refuse(&*layer, refusal, &mut parts).await);
            }
        };
        let settings = layer.settings();
        let head = settings.responder.head(&parts);
        let request = Request::from_parts(parts, body);
        let finished = match settings.on_cancel {
            OnCancel::Drop => {
                let handled = {
                    let mut calling = pin!(Some(Oneshot::new(inner, request)));
                    handle(&*layer, &claim, Pinned(calling.as_mut())).await
                };
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
            Ok(settings.responder.refuse(refusal, &head))
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
        let settings = layer.settings();
        let refusal = layer.refused(refusal);
        if OverloadDelay::applies_to(&refusal) {
            // The key may be in the body.
            parts.extensions.remove::<RequestBody>();
            settings.overload_delay.pass(settings.wait).await;
        }
        let responder = &settings.responder;
        responder.refuse(refusal, &responder.head(parts))
    })
}

/// A future that its caller has pinned, so that the futures around it move only a pointer. It is dropped with this value.
struct Pinned<'a, F>(Pin<&'a mut Option<F>>);

impl<F: Future> Future for Pinned<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let pinned = self.0.as_mut().as_pin_mut();
        pinned.expect("it is there until this is dropped").poll(cx)
    }
}

impl<F> Drop for Pinned<'_, F> {
    fn drop(&mut self) {
        self.0.set(None);
    }
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
    let handled = handle(&*layer, &claim, Oneshot::new(inner, request)).await;
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
    let handling = client::around(layer.settings().client.id(), guard.handle(), handling);
    let span = guard.span();
    match span.is_none() {
        true => Either::Left(handling),
        false => Either::Right(handling.instrument(span)),
    }
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

/// Puts the confirmation into the response, unless a layer further in has put a weaker one there.
pub(crate) fn confirmed<R, E>(served: Served<R, E>, by: Confirmation) -> Served<R, E> {
    served.map(|mut response| {
        let extensions = response.extensions_mut();
        if extensions.get() != Some(&Confirmation::Lease) {
            extensions.insert(by);
        }
        response
    })
}

/// A complete body.
pub(crate) fn whole<R>(body: Bytes) -> ResponseBody<R> {
    ResponseBody::local(body::whole(body))
}
