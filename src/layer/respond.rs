//! Answers to requests that are not served.

use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{HeaderValue, Method, Response};
use http_body::Body;

use super::body::{LocalBody, ResponseBody, local, whole};
use super::rejection::{Rejection, RejectionKind};
use crate::error::{BoxError, LockError};
use crate::key::route_of;
use crate::telemetry::{Route, SeldomByText};

type Respond = dyn Fn(&Rejection) -> Response<LocalBody> + Send + Sync;

/// Makes responses of rejections: the layer's own, or those of the user's closure.
#[derive(Clone, Default)]
pub(crate) struct Responder {
    respond: Option<Arc<Respond>>,
    log: Arc<RejectionLog>,
}

impl Responder {
    pub(crate) fn new<F, B>(respond: F) -> Self
    where
        F: Fn(&Rejection) -> Response<B> + Send + Sync + 'static,
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        Self {
            respond: Some(Arc::new(move |rejection| respond(rejection).map(local))),
            log: Arc::default(),
        }
    }

    /// Makes the final response to a request with this head.
    pub(crate) fn refuse<R>(&self, rejection: Rejection, head: &Head) -> Response<ResponseBody<R>> {
        self.log.rejected(&rejection, &head.route);
        let mut response = match &self.respond {
            Some(respond) => respond(&rejection),
            None => rejection.to_response().map(whole),
        };
        if head.method == Method::HEAD {
            leave_out_body(&mut response);
        }
        let rejection = match response.headers().contains_key("grpc-status") {
            // Its HTTP status is 200 whatever the cause is.
            true => rejection,
            false => rejection.with_status(response.status()),
        };
        response.extensions_mut().insert(rejection);
        response.map(ResponseBody::local)
    }

    /// Logs why the body of a response of this route breaks off.
    pub(super) fn cut_off(&self, error: LockError, route: &Route) -> BoxError {
        self.log.rejected(&Rejection::ended(error.clone()), route);
        error.into()
    }
}

/// What a response needs of the head of its request, which the handler has consumed.
#[derive(Clone)]
pub(crate) struct Head {
    pub(crate) method: Method,
    pub(crate) route: Route,
}

impl Head {
    pub(crate) fn of(parts: &Parts) -> Self {
        Self {
            method: parts.method.clone(),
            route: route_of(parts),
        }
    }
}

/// Keeps the length of the body that is left out: otherwise a server would set 0, which RFC 9110, 8.6 forbids.
fn leave_out_body(response: &mut Response<LocalBody>) {
    let body = std::mem::replace(response.body_mut(), whole(Bytes::new()));
    if let Some(length) = body.size_hint().exact() {
        let length = HeaderValue::from(length);
        response
            .headers_mut()
            .entry(CONTENT_LENGTH)
            .or_insert(length);
    }
}

/// The log of requests that were not served, or whose outcome is unknown.
#[derive(Debug, Default)]
pub(crate) struct RejectionLog(SeldomByText);

impl RejectionLog {
    /// Logs a rejection with its causes, at most once a minute for each kind that a failure multiplies, and for each mistake of
    /// the program. What is left out is at debug.
    pub(crate) fn rejected(&self, rejection: &Rejection, route: &Route) {
        let (error, kind) = (rejection as &dyn Error, rejection.kind());
        let route = route.template();
        let what = match kind {
            RejectionKind::Lost => "a request has an unknown outcome",
            _ => "a request was not served",
        };
        let due = match kind {
            RejectionKind::Misconfigured => self.0.due(rejection.to_string()),
            RejectionKind::Lost | RejectionKind::RecordUnreadable | RejectionKind::Unavailable => {
                self.0.due(kind.as_str())
            }
            _ => None,
        };
        match due {
            None => tracing::debug!(rejection = error, route, "{what}"),
            Some(left_out) if matches!(kind, RejectionKind::Lost | RejectionKind::Unavailable) => {
                tracing::warn!(rejection = error, route, left_out, "{what}");
            }
            Some(left_out) => tracing::error!(rejection = error, route, left_out, "{what}"),
        }
    }
}
