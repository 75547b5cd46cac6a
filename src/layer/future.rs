use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use tokio::time::Instant;
use tower_service::Service;
use tracing::Instrument;

use super::admission::Admitted;
use super::body::ResponseBody;
use super::body_mode::BodyMode;
use super::confirm::{Confirmation, Unconfirmed, confirm};
use super::rejection::Refusal;
use super::respond::Witness;
use super::settings::{Confirm, OnCancel, OnLost, ReleaseOn};
use super::{DistributedLockLayer, Unlocked};
use crate::client;
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::key::KeyExtractor;

/// The future of [`DistributedLock`](super::DistributedLock).
///
/// Nothing is acquired before it is first polled. Dropping it releases, whatever point it has reached, unless
/// [`OnCancel::RunToCompletion`] says otherwise.
pub struct ResponseFuture<R, E> {
    serving: Serving<R, E>,
}

type Serving<R, E> = Pin<Box<dyn Future<Output = Result<Response<ResponseBody<R>>, E>> + Send>>;

impl<R, E> ResponseFuture<R, E> {
    pub(super) fn new<S, K, M, B>(
        layer: Arc<DistributedLockLayer<K, M>>,
        inner: S,
        request: Request<B>,
    ) -> Self
    where
        S: Service<Request<B>, Response = Response<R>, Error = E> + Send + 'static,
        S::Future: Send + 'static,
        E: Send + 'static,
        K: KeyExtractor + 'static,
        M: BodyMode<B>,
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

/// A request on its way, from its head to its response.
async fn serve<S, K, M, B, R>(
    layer: Arc<DistributedLockLayer<K, M>>,
    inner: S,
    request: Request<B>,
) -> Result<Response<ResponseBody<R>>, S::Error>
where
    S: Service<Request<B>, Response = Response<R>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    K: KeyExtractor + 'static,
    M: BodyMode<B>,
    B: Send + 'static,
    R: Body + Send + 'static,
{
    let (mut parts, body) = request.into_parts();
    let admitted = async {
        let (plan, body) = layer.plan(&mut parts, body).await?;
        let admitted = layer.admit(plan, &mut parts).await?;
        Ok((admitted, body))
    };
    let (admitted, body) = match admitted.await {
        Ok(admitted) => admitted,
        Err(refusal) => return Ok(layer.refuse(refusal, &layer.policy.responder.witness(&parts))),
    };
    let Some(Admitted { guard, confirm }) = admitted else {
        parts.extensions.insert(Unlocked);
        let response = call(inner, Request::from_parts(parts, body)).await?;
        return Ok(response.map(ResponseBody::handlers));
    };
    let witness = layer.policy.responder.witness(&parts);
    parts.extensions.insert(guard.handle());
    let request = Request::from_parts(parts, body);
    let detached = layer.policy.on_cancel == OnCancel::RunToCompletion;
    let span = guard.span();
    let lock = guard.handle();
    let running = run(
        layer.clone(),
        inner,
        request,
        (guard, confirm),
        witness.clone(),
    );
    let running = client::around(layer.client.id(), lock, running).instrument(span);
    if !detached {
        return running.await;
    }
    match in_task(running).await {
        Some(response) => response,
        None => Ok(layer.refuse(LockError::Lost.into(), &witness)),
    }
}

/// Drives `work` to its end, whoever goes on waiting for it. Panics pass; `None`: the runtime went down.
pub(crate) async fn in_task<T>(work: impl Future<Output = T> + Send + 'static) -> Option<T>
where
    T: Send + 'static,
{
    match tokio::spawn(work.in_current_span()).await {
        Ok(result) => Some(result),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => None,
    }
}

/// From the grant to the response.
async fn run<S, K, M, B, R>(
    layer: Arc<DistributedLockLayer<K, M>>,
    inner: S,
    request: Request<B>,
    (guard, how): (LockGuard, Confirm),
    witness: Witness,
) -> Result<Response<ResponseBody<R>>, S::Error>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body,
{
    let policy = &layer.policy;
    let granted = Instant::now();
    let result = match policy.on_lost {
        OnLost::Continue => Ok(call(inner, request).await),
        OnLost::Abort => unless_lost(&guard, call(inner, request)).await,
    };
    let result = match result {
        Ok(Ok(response))
            if policy.release_on == ReleaseOn::BodyEnd && has_body(&response, &witness) =>
        {
            let length = length(&response);
            let guarded = |body| ResponseBody::guarded(body, guard, length, how, policy.on_lost);
            return Ok(response.map(guarded));
        }
        Ok(result) => confirm(how, guard, None).await.map(|by| (result, by)),
        Err(lost) => Err(lost),
    };
    policy.hold_times.add(granted.elapsed());
    match result {
        Ok((result, confirmation)) => result.map(|mut response| {
            if confirmation == Confirmation::Lease && how == Confirm::Store {
                if let Some(left_out) = policy.by_lease.due() {
                    tracing::warn!(
                        left_out,
                        "a response is confirmed by its lease alone: the store did not answer"
                    );
                }
            }
            response.extensions_mut().insert(confirmation);
            response.map(ResponseBody::handlers)
        }),
        Err(Unconfirmed) => Ok(layer.refuse(LockError::Lost.into(), &witness)),
    }
}

/// Makes the service ready and calls it: it was not ready while the request waited.
pub(crate) async fn call<S, B>(mut inner: S, request: Request<B>) -> Result<S::Response, S::Error>
where
    S: Service<Request<B>>,
{
    poll_fn(|cx| inner.poll_ready(cx)).await?;
    inner.call(request).await
}

/// Drives `handling` until it is done, or the lock is lost.
///
/// The lock is watched from its first wait on: a handler that never waits needs no timer for that, and the confirmation
/// finds what was lost until then.
pub(crate) async fn unless_lost<T>(
    guard: &LockGuard,
    handling: impl Future<Output = T>,
) -> Result<T, Unconfirmed> {
    let (mut handling, mut lost) = (pin!(handling), pin!(guard.lost()));
    let mut is_watched = false;
    poll_fn(|cx| {
        if is_watched && lost.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(Unconfirmed));
        }
        if let Poll::Ready(done) = handling.as_mut().poll(cx) {
            return Poll::Ready(Ok(done));
        }
        match std::mem::replace(&mut is_watched, true) {
            true => Poll::Pending,
            false => lost.as_mut().poll(cx).map(|()| Err(Unconfirmed)),
        }
    })
    .await
}

/// Whether anybody will read the body to its end.
fn has_body<R: Body>(response: &Response<R>, witness: &Witness) -> bool {
    let status = response.status();
    let none = status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        || witness.method == Method::HEAD
        || witness.method == Method::CONNECT && status.is_success();
    !none && !response.body().is_end_stream()
}

/// What the head of the response promises.
fn length<R: Body>(response: &Response<R>) -> Option<u64> {
    let header = response.headers().get(CONTENT_LENGTH);
    header
        .and_then(|length| length.to_str().ok()?.parse().ok())
        .or_else(|| response.body().size_hint().exact())
}

impl<K, M> DistributedLockLayer<K, M> {
    fn refuse<R>(&self, refusal: Refusal, witness: &Witness) -> Response<ResponseBody<R>> {
        let refusal = self.policy.refused(refusal);
        self.policy.responder.refuse(refusal, witness)
    }
}
