//! How [`DistributedLockLayer`] treats a request.

use std::future::ready;
use std::pin::Pin;

use futures_util::future::Either;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{Method, Response, StatusCode};
use http_body::Body;

use super::DistributedLockLayer;
use super::admission::ReleaseContext;
use super::body::{BodyLock, ResponseBody};
use super::confirm::{Confirmation, NotConfirmed, confirm};
use super::hold_times::TimedHold;
use super::policy::Policy;
use super::respond::Head;
use super::serve::{Claim, FinalResponse, HandlerOutcome, NotAdmitted, Protocol};
use super::serve_settings::ServeSettings;
use super::settings::{Confirm, OnLost, ReleaseOn};
use super::take_body::TakesBody;
use super::timing::LockTiming;
use super::unless_lost::unless_lost;
use crate::guard::LockGuard;
use crate::telemetry::Route;

impl<const STREAMED: bool, B, R> Protocol<B, R> for DistributedLockLayer<STREAMED>
where
    Self: TakesBody<B>,
    B: Send + 'static,
    R: Body + Send + 'static,
{
    type Context = ReleaseContext;
    type Handled = Response<R>;

    fn admit(
        &self,
        parts: &mut Parts,
        body: B,
        route: &Route,
    ) -> impl Future<Output = Result<(B, Claim<ReleaseContext>), NotAdmitted<B>>> + Send {
        self.claim(parts, body, route)
    }

    fn handle<E: Send>(
        &self,
        claim: &Claim<ReleaseContext>,
        calling: Pin<&mut (impl Future<Output = Result<Response<R>, E>> + Send)>,
    ) -> impl Future<Output = HandlerOutcome<Response<R>, E>> + Send {
        let watched = (self.policy.on_lost == OnLost::Abort).then_some(&claim.guard);
        unless_lost(watched, calling)
    }

    fn finish<E: Send>(
        &self,
        Claim { guard, context }: Claim<ReleaseContext>,
        head: &Head,
        handled: HandlerOutcome<Response<R>, E>,
    ) -> impl Future<Output = Result<FinalResponse<R, E>, NotConfirmed>> + Send {
        let policy = &self.policy;
        let mut result = match handled {
            Ok(Ok(response))
                if policy.release_on == ReleaseOn::BodyEnd && has_body(&response, &head.method) =>
            {
                // The head goes out before the lock is released.
                let response = policy.in_body(response, guard, &context, &head.route);
                return Either::Left(ready(Ok(Ok(response))));
            }
            Ok(result) => result,
            Err(lost) => {
                let held = context.granted.elapsed();
                policy.serve.hold_times.add(&head.route, held);
                return Either::Left(ready(Err(lost)));
            }
        };
        // Not an `async fn`, whose future has its arguments twice; what is awaited by reference is not there twice either.
        let mut confirming = confirm(context.confirm, guard, None);
        Either::Right(async move {
            let by = (&mut confirming).await;
            let held = context.granted.elapsed();
            policy.serve.hold_times.add(&head.route, held);
            let by = by?;
            if let Ok(response) = &mut result {
                if by == Confirmation::Lease && context.confirm == Confirm::Store {
                    policy.warn_of_lease();
                }
                LockTiming::released(context.waited, held, by).put(response);
            }
            Ok(result.map(|response| response.map(ResponseBody::handlers)))
        })
    }

    fn settings(&self) -> &ServeSettings {
        &self.policy.serve
    }
}

impl Policy {
    /// The response with its lock inside the body.
    fn in_body<R: Body>(
        &self,
        response: Response<R>,
        guard: LockGuard,
        context: &ReleaseContext,
        route: &Route,
    ) -> Response<ResponseBody<R>> {
        let timed = TimedHold {
            granted: context.granted,
            route: *route,
            hold_times: self.serve.hold_times.clone(),
        };
        let length = length(&response);
        let lock = BodyLock::new(guard, timed, length, context.confirm, self.on_lost);
        let mut response = response.map(|body| ResponseBody::guarded(body, lock));
        LockTiming::in_body(context.waited).put(&mut response);
        response
    }

    /// Logs at most once a minute that the store did not confirm a response.
    fn warn_of_lease(&self) {
        if let Some(left_out) = self.by_lease.due() {
            tracing::warn!(
                left_out,
                "a response is confirmed by its lease alone: the store did not answer"
            );
        }
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
