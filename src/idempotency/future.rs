use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;
use tracing::Instrument;

use super::IdempotencyLayer;
use super::admission::{Admission, Claim, route};
use super::recording::replayed_body;
use crate::error::{BoxError, LockError};
use crate::key::KeyExtractor;
use crate::layer::{OnCancel, ResponseBody, Unconfirmed, call, confirm, in_task, unless_lost};
use crate::telemetry::{Route, idempotent_request, idempotent_response};

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

/// Serves a request, from its head to its response.
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
    if !layer.applies_to(&parts) {
        return pass(inner, Request::from_parts(parts, body)).await;
    }
    let admission = layer.admit(&mut parts, body).await;
    let responder = &layer.settings.responder;
    let (body, claim) = match admission {
        Ok(Admission::Run(body, claim)) => (body, claim),
        Ok(Admission::Pass(body)) => return pass(inner, Request::from_parts(parts, body)).await,
        Ok(Admission::Replay(response)) => {
            idempotent_request(&route(&parts), "replayed");
            return Ok(response.map(replayed_body));
        }
        Err(refusal) => {
            idempotent_request(&route(&parts), "refused");
            return Ok(responder.refuse(refusal, &responder.witness(&parts)));
        }
    };
    let route = route(&parts);
    idempotent_request(&route, "executed");
    let witness = responder.witness(&parts);
    let request = Request::from_parts(parts, body);
    let detached = layer.settings.on_cancel == OnCancel::RunToCompletion;
    let span = claim.guard.span();
    let running = run(layer.clone(), inner, request, claim, route).instrument(span);
    let confirmed = match detached {
        // `None`: the runtime went down.
        true => in_task(running).await.unwrap_or(Err(Unconfirmed)),
        false => running.await,
    };
    confirmed.unwrap_or_else(|Unconfirmed| Ok(responder.refuse(LockError::Lost.into(), &witness)))
}

/// Hands a request on as if the layer were not there.
async fn pass<S, B, R>(inner: S, request: Request<B>) -> Served<R, S::Error>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    let response = call(inner, request).await?;
    Ok(response.map(ResponseBody::handlers))
}

/// From the claim to the response.
async fn run<S, K, B, R>(
    layer: Arc<IdempotencyLayer<K>>,
    inner: S,
    request: Request<B>,
    claim: Claim,
    route: Route,
) -> Result<Served<R, S::Error>, Unconfirmed>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body<Error: Into<BoxError>> + Send + 'static,
{
    let Claim { guard, fingerprint } = claim;
    let settings = &layer.settings;
    let handled = async {
        match call(inner, request).await {
            Ok(response) => {
                let (response, record) = settings.record_response(response, fingerprint).await;
                (Ok(response), record)
            }
            Err(error) => (Err(error), None),
        }
    };
    let (result, record) = unless_lost(&guard, handled).await.inspect_err(|_| {
        idempotent_response(&route, "not_recorded");
    })?;
    let has_record = record.is_some();
    let confirmed = confirm(settings.confirm, guard, record).await;
    let outcome = match (has_record, &confirmed) {
        (false, _) => "not_recorded",
        (true, Ok(_)) => "recorded",
        (true, Err(_)) => "unknown",
    };
    idempotent_response(&route, outcome);
    confirmed.map(|confirmation| {
        result.map(|mut response| {
            response.extensions_mut().insert(confirmation);
            response
        })
    })
}
