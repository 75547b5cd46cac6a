use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::Full;
use tower_service::Service;
use tracing::Instrument;

use super::IdempotencyLayer;
use super::admission::{Admission, Claim};
use super::collect::{Collected, collect, length};
use super::fingerprint::Fingerprint;
use super::record::Recorded;
use crate::error::{BoxError, LockError};
use crate::key::KeyExtractor;
use crate::layer::{
    OnCancel, ResponseBody, Unconfirmed, Witness, call, confirm, in_task, local, unless_lost,
};
use crate::store::Record;

/// The future of [`Idempotency`](super::Idempotency).
///
/// Nothing is claimed before it is first polled. Dropping it while the handler runs records nothing and releases the claim,
/// unless [`OnCancel::RunToCompletion`] says otherwise.
pub struct ResponseFuture<R, E> {
    serving: Serving<R, E>,
}

type Serving<R, E> = Pin<Box<dyn Future<Output = Served<R, E>> + Send>>;
type Served<R, E> = Result<Response<ResponseBody<R>>, E>;

impl<R, E> ResponseFuture<R, E> {
    pub(super) fn new<S, K, B>(
        layer: Arc<IdempotencyLayer<K>>,
        inner: S,
        request: Request<B>,
    ) -> Self
    where
        S: Service<Request<B>, Response = Response<R>, Error = E> + Send + 'static,
        S::Future: Send + 'static,
        E: Send + 'static,
        K: KeyExtractor + 'static,
        B: Body<Data: Send> + From<Bytes> + Send + 'static,
        R: Body<Error: Into<BoxError>> + Send + 'static,
    {
        Self {
            serving: Box::pin(serve(layer, inner, request)),
        }
    }
}

impl<R, E> Future for ResponseFuture<R, E> {
    type Output = Served<R, E>;

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
async fn serve<S, K, B, R>(
    layer: Arc<IdempotencyLayer<K>>,
    inner: S,
    request: Request<B>,
) -> Served<R, S::Error>
where
    S: Service<Request<B>, Response = Response<R>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    K: KeyExtractor + 'static,
    B: Body<Data: Send> + From<Bytes> + Send + 'static,
    R: Body<Error: Into<BoxError>> + Send + 'static,
{
    let (mut parts, body) = request.into_parts();
    let admission = match layer.concerns(&parts) {
        true => layer.admit(&mut parts, body).await,
        false => Ok(Admission::Pass(body)),
    };
    let (body, claim) = match admission {
        Ok(Admission::Run(body, claim)) => (body, claim),
        Ok(Admission::Pass(body)) => {
            let response = call(inner, Request::from_parts(parts, body)).await?;
            return Ok(response.map(ResponseBody::handlers));
        }
        Ok(Admission::Replay(response)) => return Ok(response.map(ours)),
        Err(refusal) => {
            let responder = &layer.policy.responder;
            return Ok(responder.refuse(refusal, &responder.witness(&parts)));
        }
    };
    let witness = layer.policy.responder.witness(&parts);
    let request = Request::from_parts(parts, body);
    let detached = layer.policy.on_cancel == OnCancel::RunToCompletion;
    let span = claim.guard.span();
    let running = run(layer.clone(), inner, request, claim, witness.clone()).instrument(span);
    if !detached {
        return running.await;
    }
    match in_task(running).await {
        Some(response) => response,
        None => Ok(lost(&layer, &witness)),
    }
}

/// From the claim to the response.
async fn run<S, K, B, R>(
    layer: Arc<IdempotencyLayer<K>>,
    inner: S,
    request: Request<B>,
    claim: Claim,
    witness: Witness,
) -> Served<R, S::Error>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body<Error: Into<BoxError>> + Send + 'static,
{
    let Claim { guard, fingerprint } = claim;
    let handled = async {
        match call(inner, request).await {
            Ok(response) => {
                let (response, record) = layer.keep(response, fingerprint).await;
                (Ok(response), record)
            }
            Err(error) => (Err(error), None),
        }
    };
    let confirmed = match unless_lost(&guard, handled).await {
        Ok((result, record)) => confirm(layer.policy.confirm, guard, record)
            .await
            .map(|()| result),
        Err(lost) => Err(lost),
    };
    confirmed.unwrap_or_else(|Unconfirmed| Ok(lost(&layer, &witness)))
}

impl<K> IdempotencyLayer<K> {
    /// Reads a response that is to be recorded, and writes its record.
    async fn keep<R>(
        &self,
        response: Response<R>,
        fingerprint: Fingerprint,
    ) -> (Response<ResponseBody<R>>, Option<Record>)
    where
        R: Body<Error: Into<BoxError>> + Send + 'static,
    {
        let (parts, body) = response.into_parts();
        let passed = |parts, body| Response::from_parts(parts, ResponseBody::handlers(body));
        if !self.policy.stores(&parts) {
            return (passed(parts, body), None);
        }
        let limit = self.policy.response_limit;
        match length(&parts, &body) {
            Some(length) if length <= limit as u64 => {}
            length => {
                tracing::warn!(
                    length,
                    limit,
                    status = parts.status.as_u16(),
                    "a response is streamed or too long to be recorded: a repeat of its request runs again"
                );
                return (passed(parts, body), None);
            }
        }
        match collect(body, limit).await {
            Collected::Whole(body) => {
                let recorded = Recorded::new(fingerprint, &parts, body.clone());
                let record = Record {
                    value: recorded.encode(),
                    retention: self.policy.retention,
                };
                (Response::from_parts(parts, ours(body)), Some(record))
            }
            Collected::Part(resumed) => {
                tracing::warn!(
                    "a response did not end as it had said and is not recorded: a repeat of its request runs again"
                );
                let body = ResponseBody::local(local(resumed));
                (Response::from_parts(parts, body), None)
            }
        }
    }
}

/// A body that is there already.
fn ours<R>(body: Bytes) -> ResponseBody<R> {
    ResponseBody::local(local(Full::new(body)))
}

fn lost<K, R>(layer: &IdempotencyLayer<K>, witness: &Witness) -> Response<ResponseBody<R>> {
    let refusal = LockError::Lost.into();
    layer.policy.responder.refuse(refusal, witness)
}
