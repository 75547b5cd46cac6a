//! How [`DistributedLockLayer`] treats a request.

use std::pin::Pin;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{Method, Response, StatusCode};
use http_body::Body;

use super::DistributedLockLayer;
use super::body::{ResponseBody, guarded};
use super::confirm::confirm;
use super::respond::Head;
use super::serve::{Claim, FinalResponse, HandlerOutcome, NotAdmitted, Protocol};
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
    type Handled = Response<R>;

    fn admit(
        &self,
        parts: &mut Parts,
        body: B,
        route: &Route,
    ) -> impl Future<Output = Result<(B, Claim<Confirm>), NotAdmitted<B>>> + Send {
        self.claim(parts, body, route)
    }

    fn handle<E: Send>(
        &self,
        claim: &Claim<Confirm>,
        calling: Pin<&mut (impl Future<Output = Result<Response<R>, E>> + Send)>,
    ) -> impl Future<Output = HandlerOutcome<Response<R>, E>> + Send {
        let watched = (self.policy.on_lost == OnLost::Abort).then_some(&claim.guard);
        unless_lost(watched, calling)
    }

    fn finish<E: Send>(
        &self,
        mut claim: Claim<Confirm>,
        head: &Head,
        handled: HandlerOutcome<Response<R>, E>,
    ) -> impl Future<Output = Result<FinalResponse<R, E>, LockError>> + Send {
        let (policy, how) = (&self.policy, claim.context);
        // Not an `async fn`, which moves its arguments once more.
        async move {
            let result = handled?;
            if policy.release_on == ReleaseOn::BodyEnd
                && let Ok(response) = &result
                && has_body(response, &head.method)
            {
                // The head goes out before the lock is released.
                let (length, route) = (length(response), claim.timed.route);
                let (policy, on_lost) = (policy.clone(), policy.on_lost);
                let cut_off = move |error| policy.serve.responder.cut_off(error, &route);
                return Ok(result.map(|mut response| {
                    LockTiming::of(&mut claim.timed, None).put(&mut response);
                    response.map(|body| {
                        let (guard, timed) = (claim.guard, claim.timed);
                        let body = guarded(body, guard, timed, length, how, on_lost, cut_off);
                        ResponseBody::local(body)
                    })
                }));
            }
            let by = confirm(how, claim.guard, None).await?;
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
