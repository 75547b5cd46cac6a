//! The steps of a request, which both layers have.

use std::pin::Pin;

use futures_util::future::{Either, FutureExt};
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use tower::util::Oneshot;
use tower_service::Service;
use tracing::Instrument;

use super::body::{LocalBody, ResponseBody};
use super::hold_times::TimedHold;
use super::rejection::{Rejection, RejectionKind};
use super::respond::Head;
use super::serve_settings::ServeSettings;
use super::settings::OnCancel;
use crate::client::{LayerLocks, moved};
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::key::{Cause, KeyError};
use crate::telemetry::Route;

/// A layer that serves requests with the body `B` under a lock. The responses of the inner service have the body `R`. A clone
/// costs next to nothing.
pub(crate) trait Protocol<B, R>: Clone + Send + Sync + 'static {
    /// What the end of a request needs, besides the guard.
    type Context: Send + Sync + 'static;

    /// Takes the lock of a request of this route. Returns its body, and the claim.
    fn admit(
        &self,
        parts: &mut Parts,
        body: B,
        route: &Route,
    ) -> impl Future<Output = Result<(B, Claim<Self::Context>), NotAdmitted<B>>> + Send;

    /// Drives `calling`, which calls the inner service, under the lock, and makes the response to a request with this head. What is
    /// left of `calling` is dropped while the lock is held, even if this future is dropped.
    fn run<E: Send>(
        &self,
        claim: Claim<Self::Context>,
        head: &Head,
        calling: Pin<Box<impl Future<Output = Result<Response<R>, E>> + Send>>,
    ) -> impl Future<Output = Result<FinalResponse<R, E>, LockError>> + Send;

    fn settings(&self) -> &ServeSettings;
}

/// How a layer treats a request for which it holds no lock.
pub(crate) enum NotAdmitted<B> {
    /// The inner service serves it: it needs no lock.
    Bypass(B),
    /// The inner service serves it without the lock that it needs.
    Unlocked(B),
    /// This is its answer, of a key extractor or of an earlier request.
    Answer(Response<LocalBody>),
    /// It is not served.
    Rejected(Rejection),
}

impl<B, R: Into<Rejection>> From<R> for NotAdmitted<B> {
    fn from(rejection: R) -> Self {
        Self::Rejected(rejection.into())
    }
}

impl<B> From<KeyError> for NotAdmitted<B> {
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
                "the key is in the request's body, which was not read: leave out `stream_body`, or take the key from the head",
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
    pub(crate) timed: TimedHold,
    pub(crate) context: D,
}

/// A response, or the error of the inner service.
pub(crate) type FinalResponse<R, E> = Result<Response<ResponseBody<R>>, E>;

/// Serves a request, from its head to its response.
///
/// Its future is kept below a kilobyte, because the allocator takes much longer for a larger one: what only some requests need is
/// boxed, and no step is an `async fn`, which has its arguments twice.
pub(crate) fn serve<S, L, B, R>(
    layer: L,
    inner: S,
    request: Request<B>,
) -> impl Future<Output = FinalResponse<R, S::Error>> + Send
where
    S: Service<Request<B>, Response = Response<R>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    L: Protocol<B, R>,
    B: Send + 'static,
    R: Body + Send + 'static,
{
    let (mut parts, body) = request.into_parts();
    async move {
        let head = Head::of(&parts);
        let (body, claim, is_completed) = match layer.admit(&mut parts, body, &head.route).await {
            Ok((body, claim)) => (body, Some(claim), runs_to_completion(&layer)),
            Err(NotAdmitted::Unlocked(body)) => (body, None, runs_to_completion(&layer)),
            Err(NotAdmitted::Bypass(body)) => (body, None, false),
            Err(NotAdmitted::Answer(response)) => return Ok(response.map(ResponseBody::local)),
            Err(NotAdmitted::Rejected(rejection)) => {
                let settings = layer.settings();
                let rejection = settings.timed(rejection, &head.route);
                return Ok(settings.responder.refuse(rejection, &head));
            }
        };
        let calling = Box::pin(Oneshot::new(inner, Request::from_parts(parts, body)));
        let answered = match is_completed {
            false => answered(&layer, &head, claim, calling).await,
            true => {
                let (task, of) = (layer.clone(), head.clone());
                let work = async move { answered(&task, &of, claim, calling).await };
                let answered = in_task(layer.settings(), work).await;
                answered.unwrap_or(Err(LockError::Lost))
            }
        };
        answered.unwrap_or_else(|error| {
            let responder = &layer.settings().responder;
            Ok(responder.refuse(Rejection::ended(error), &head))
        })
    }
}

/// What the inner service answers under the lock, if there is one.
fn answered<L, B, R, E>(
    layer: &L,
    head: &Head,
    claim: Option<Claim<L::Context>>,
    calling: Pin<Box<impl Future<Output = Result<Response<R>, E>> + Send>>,
) -> impl Future<Output = Result<FinalResponse<R, E>, LockError>> + Send
where
    E: Send,
    L: Protocol<B, R>,
    R: Send,
{
    match claim {
        Some(claim) => Either::Left(layer.run(claim, head, calling)),
        None => {
            Either::Right(calling.map(|called| Ok(called.map(|it| it.map(ResponseBody::handlers)))))
        }
    }
}

fn runs_to_completion<B, R>(layer: &impl Protocol<B, R>) -> bool {
    layer.settings().on_cancel == OnCancel::RunToCompletion
}

/// Drives `work` to its end in a task, even if this future is dropped. The task is inside of the span and the locks of the caller, and
/// the shutdown of the client waits for it. `None`: the runtime has ended.
fn in_task<T: Send + 'static>(
    settings: &ServeSettings,
    work: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = Option<T>> + Send {
    let work = moved(work).in_current_span();
    let task = settings.client.tasks().spawn(work);
    async move {
        match task.await {
            Ok(output) => Some(output),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => None,
        }
    }
}

/// Runs `work` under the lock of `guard`, and in its span.
pub(crate) fn under<T>(
    guard: &LockGuard,
    work: impl Future<Output = T> + Send,
) -> impl Future<Output = T> + Send {
    let work = LayerLocks::new(guard.handle()).around(work);
    let span = guard.span();
    match span.is_none() {
        true => Either::Left(work),
        false => Either::Right(work.instrument(span)),
    }
}
