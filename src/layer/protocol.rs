//! How [`DistributedLockLayer`] treats a request.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{Method, Response, StatusCode};
use http_body::Body;

use super::DistributedLockLayer;
use super::body::{ResponseBody, guarded};
use super::confirm::confirm;
use super::policy::Policy;
use super::respond::Head;
use super::serve::{Claim, FinalResponse, NotAdmitted, Protocol, under};
use super::serve_settings::ServeSettings;
use super::settings::{Confirm, OnLost, ReleaseOn};
use super::take_body::TakesBody;
use super::timing::LockTiming;
use super::unless_lost::unless_lost;
use crate::error::{BoxError, LockError};
use crate::telemetry::Route;

impl<const STREAMED: bool, B, R> Protocol<B, R> for DistributedLockLayer<STREAMED>
where
    Self: TakesBody<B>,
    B: Send + 'static,
    R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Context = Confirm;

    fn admit(
        &self,
        parts: &mut Parts,
        body: B,
        route: &Route,
    ) -> impl Future<Output = Result<(B, Claim<Confirm>), NotAdmitted<B>>> + Send {
        self.claim(parts, body, route)
    }

    fn run<E: Send>(
        &self,
        mut claim: Claim<Confirm>,
        head: &Head,
        calling: Pin<Box<impl Future<Output = Result<Response<R>, E>> + Send>>,
    ) -> impl Future<Output = Result<FinalResponse<R, E>, LockError>> + Send {
        let policy = &self.policy;
        async move {
            let watched = (policy.on_lost == OnLost::Abort).then_some(&claim.guard);
            let result = under(&claim.guard, unless_lost(watched, calling)).await?;
            if policy.release_on == ReleaseOn::BodyEnd
                && let Ok(response) = &result
                && has_body(response, &head.method)
            {
                // The head goes out before the lock is released.
                return Ok(result.map(|response| held_by_body(policy, claim, response)));
            }
            let by = confirm(claim.context, claim.guard, None).await?;
            Ok(result.map(|mut response| {
                LockTiming::of(&mut claim.timed, Some(by)).put(&mut response);
                response.map(ResponseBody::handlers)
            }))
        }
    }

    fn settings(&self) -> &ServeSettings {
        &self.policy.serve
    }
}

/// The response whose body has the lock inside.
fn held_by_body<R>(
    policy: &Arc<Policy>,
    mut claim: Claim<Confirm>,
    mut response: Response<R>,
) -> Response<ResponseBody<R>>
where
    R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let (length, route) = (length(&response), claim.timed.route);
    let (policy, on_lost) = (policy.clone(), policy.on_lost);
    let cut_off = move |error| policy.serve.responder.cut_off(error, &route);
    LockTiming::of(&mut claim.timed, None).put(&mut response);
    let Claim {
        guard,
        timed,
        context,
    } = claim;
    response.map(|body| {
        let body = guarded(body, guard, timed, length, context, on_lost, cut_off);
        ResponseBody::local(body)
    })
}

/// Whether the client reads the body to its end.
fn has_body<R: Body>(response: &Response<R>, method: &Method) -> bool {
    let status = response.status();
    let none = status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        || method == Method::HEAD
        || method == Method::CONNECT && status.is_success();
    // A server does not poll a body whose declared length is zero.
    !none && length(response) != Some(0) && !response.body().is_end_stream()
}

/// The length from the head of the response, or from the body.
fn length<R: Body>(response: &Response<R>) -> Option<u64> {
    let header = response.headers().get(CONTENT_LENGTH);
    header
        .and_then(|length| length.to_str().ok()?.parse().ok())
        .or_else(|| response.body().size_hint().exact())
}
