//! The steps of a request, which both layers have.

use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::{Either, MaybeDone};
use http::request::Parts;
use http::{Method, Request, Response};
use http_body::Body;
use tower::util::Oneshot;
use tower_service::Service;
use tracing::Instrument;

use super::body::{LocalBody, ResponseBody};
use super::confirm::{Confirmation, NotConfirmed};
use super::overload_delay::OverloadDelay;
use super::rejection::{Rejection, RejectionKind};
use super::serve_settings::ServeSettings;
use super::settings::OnCancel;
use crate::client::{Held, moved};
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::key::{Cause, KeyError};

/// A layer that serves requests with the body `B` under a lock. The responses of the inner service have the body `R`.
pub(crate) trait Protocol<B, R>: Send + Sync + 'static {
    /// The data that the end of a request needs, besides the guard.
    type ClaimData: Send + Sync + 'static;

    /// What the layer makes of a handler's response while the lock is held.
    type Handled: Send;

    /// Takes the lock of a request. Returns its body, and the claim.
    fn admit(
        &self,
        parts: &mut Parts,
        body: B,
    ) -> impl Future<Output = Result<(B, Claim<Self::ClaimData>), Unclaimed<B>>> + Send;

    /// Drives `calling`, which answers a request, to what the layer makes of its response, while the lock is held.
    fn handle<E: Send>(
        &self,
        claim: &Claim<Self::ClaimData>,
        calling: impl Future<Output = Result<Response<R>, E>> + Send,
    ) -> impl Future<Output = Handling<Self::Handled, E>> + Send;

    /// Releases the lock, and makes the response to a request with `method`.
    fn finish<E: Send>(
        &self,
        claim: Claim<Self::ClaimData>,
        method: &Method,
        handled: Handling<Self::Handled, E>,
    ) -> impl Future<Output = Result<Served<R, E>, NotConfirmed>> + Send;

    fn settings(&self) -> &ServeSettings;
}

/// How a layer treats a request for which it holds no lock.
pub(crate) enum Unclaimed<B> {
    /// The inner service serves it: it needs no lock.
    Pass(B),
    /// The inner service serves it without the lock that it needs.
    Proceed(B),
    /// This is its answer, of a key extractor or of an earlier request.
    Answer(Response<LocalBody>),
    /// It is not served.
    Rejected(Rejection),
}

impl<B, R: Into<Rejection>> From<R> for Unclaimed<B> {
    fn from(rejection: R) -> Self {
        Self::Rejected(rejection.into())
    }
}

impl<B> From<KeyError> for Unclaimed<B> {
    fn from(error: KeyError) -> Self {
        match error.into_cause() {
            Cause::Missing(reason) => Rejection::new(RejectionKind::KeyMissing)
                .with_detail(reason)
                .into(),
            Cause::Invalid(reason) => Rejection::new(RejectionKind::KeyInvalid)
                .with_detail(Some(reason.into()))
                .into(),
            #[cfg(feature = "axum")]
            Cause::NotOfTheRoute(reason) => LockError::invalid(reason).into(),
            Cause::BodyUnread => LockError::invalid(
                "the key is in the request's body, which was not read: call `buffer_body` on the layer",
            )
            .into(),
            Cause::Response(mut response) => {
                let rejection = Rejection::new(RejectionKind::KeyRejected);
                let rejection = rejection.with_status(response.status());
                response.extensions_mut().insert(rejection);
                Self::Answer(response.map(LocalBody::Right))
            }
        }
    }
}

/// The right to serve a request.
pub(crate) struct Claim<D> {
    pub(crate) guard: LockGuard,
    pub(crate) data: D,
}

/// What a handler has led to: a response, an error of the inner service, or the loss of its lock.
pub(crate) type Handling<H, E> = Result<Result<H, E>, NotConfirmed>;

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
            Err(Unclaimed::Proceed(body))
                if layer.settings().on_cancel == OnCancel::RunToCompletion =>
            {
                let request = Request::from_parts(parts, body);
                return proceed_in_task(layer.settings(), inner, request).await;
            }
            Err(Unclaimed::Pass(body) | Unclaimed::Proceed(body)) => {
                let request = Request::from_parts(parts, body);
                let response = Oneshot::new(inner, request).await?;
                return Ok(response.map(ResponseBody::handlers));
            }
            Err(Unclaimed::Answer(response)) => return Ok(response.map(ResponseBody::local)),
            Err(Unclaimed::Rejected(rejection)) => {
                return Ok(refuse(layer.settings(), rejection, &mut parts).await);
            }
        };
        let settings = layer.settings();
        let head = settings.responder.head(&parts);
        let request = Request::from_parts(parts, body);
        let finished = match settings.on_cancel {
            OnCancel::Drop => {
                // These lines are there twice, because a function would have the future of the handler twice.
                let handled = {
                    let calling = Oneshot::new(inner, request);
                    let mut handling = pin!(MaybeDone::Future(layer.handle(&claim, calling)));
                    under(&claim.guard, Pinned(handling.as_mut())).await;
                    output(handling)
                };
                // Pinned here, so that only a pointer is moved.
                pin!(layer.finish(claim, &head.method, handled)).await
            }
            OnCancel::RunToCompletion => {
                let (layer, method) = (layer.clone(), head.method.clone());
                let finished = in_task(settings, async move {
                    let handled = {
                        let calling = Oneshot::new(inner, request);
                        let mut handling = pin!(MaybeDone::Future(layer.handle(&claim, calling)));
                        under(&claim.guard, Pinned(handling.as_mut())).await;
                        output(handling)
                    };
                    layer.finish(claim, &method, handled).await
                });
                // `None`: the runtime has ended.
                Box::pin(finished).await.unwrap_or(Err(NotConfirmed))
            }
        };
        finished.unwrap_or_else(|NotConfirmed| {
            Ok(settings.responder.refuse(LockError::Lost.into(), &head))
        })
    })
}

/// Serves a request without its lock, in a task.
fn proceed_in_task<S, B, R>(
    settings: &ServeSettings,
    inner: S,
    request: Request<B>,
) -> impl Future<Output = Served<R, S::Error>> + Send
where
    S: Service<Request<B>, Response = Response<R>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Send + 'static,
    R: Body + Send + 'static,
{
    Box::pin(async move {
        let (parts, body) = request.into_parts();
        let head = settings.responder.head(&parts);
        let calling = Oneshot::new(inner, Request::from_parts(parts, body));
        match in_task(settings, calling).await {
            Some(response) => Ok(response?.map(ResponseBody::handlers)),
            None => Ok(settings.responder.refuse(LockError::Lost.into(), &head)),
        }
    })
}

/// Answers a request that is not served.
fn refuse<R>(
    settings: &ServeSettings,
    rejection: Rejection,
    parts: &mut Parts,
) -> impl Future<Output = Response<ResponseBody<R>>> + Send {
    Box::pin(async move {
        let rejection = settings.timed(rejection);
        if OverloadDelay::applies_to(&rejection) {
            settings.overload_delay.pass(settings.wait).await;
        }
        let responder = &settings.responder;
        responder.refuse(rejection, &responder.head(parts))
    })
}

/// Drives a future that its caller has pinned and that keeps its output, so that the futures around it move only a pointer. That
/// future ends with this value at the latest.
struct Pinned<'a, F: Future>(Pin<&'a mut MaybeDone<F>>);

impl<F: Future> Future for Pinned<'_, F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}

impl<F: Future> Drop for Pinned<'_, F> {
    fn drop(&mut self) {
        if let MaybeDone::Future(_) = *self.0 {
            self.0.set(MaybeDone::Gone);
        }
    }
}

/// Runs `work` under the lock of `guard`, and in its span.
fn under(
    guard: &LockGuard,
    work: impl Future<Output = ()> + Send,
) -> impl Future<Output = ()> + Send {
    let work = Held::new(guard.handle()).around(work);
    let span = guard.span();
    match span.is_none() {
        true => Either::Left(work),
        false => Either::Right(work.instrument(span)),
    }
}

/// What a future that has ended has led to. It alone is moved: `take_output` would copy as many bytes as the future has.
fn output<H, E>(
    handling: Pin<&mut MaybeDone<impl Future<Output = Handling<H, E>>>>,
) -> Handling<H, E> {
    let handled = handling.output_mut().expect("the future has ended");
    mem::replace(handled, Err(NotConfirmed))
}

/// Drives `work` to its end in a task, even if the caller is dropped. Panics are forwarded; `None`: the runtime has
/// ended. The task is inside of the span and the locks of the caller, and the shutdown of the client waits for it.
async fn in_task<T>(
    settings: &ServeSettings,
    work: impl Future<Output = T> + Send + 'static,
) -> Option<T>
where
    T: Send + 'static,
{
    let tasks = settings.client.tasks();
    match tasks.spawn(moved(work).in_current_span()).await {
        Ok(result) => Some(result),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => None,
    }
}

/// In the extensions of a response whose body holds a lock.
#[derive(Clone, Copy)]
pub(super) struct HeldByBody;

/// Puts the confirmation into the response, unless a layer further in has put a weaker one there, or still holds its lock.
pub(crate) fn confirmed<B>(response: &mut Response<B>, by: Confirmation) {
    let extensions = response.extensions_mut();
    let has_weaker = extensions.get() == Some(&Confirmation::Lease);
    if !has_weaker && extensions.get::<HeldByBody>().is_none() {
        extensions.insert(by);
    }
}
