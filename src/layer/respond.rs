//! Answers to requests that are not served.

use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{HeaderValue, Method, Response};
use http_body::Body;

use super::body::{LocalBody, ResponseBody, local, whole};
use super::closure::Closure;
use super::rejection::{Rejection, RejectionKind};
use crate::error::BoxError;
use crate::telemetry::Seldom;

type Respond = dyn Fn(&Rejection, &Parts) -> Response<LocalBody> + Send + Sync;

/// Makes responses of rejections: the layer's own, or those of the user's closure.
#[derive(Debug, Clone, Default)]
pub(crate) struct Responder {
    respond: Option<Closure<Respond>>,
    log: Arc<RejectionLog>,
}

impl Responder {
    pub(crate) fn new<F, B>(respond: F) -> Self
    where
        F: Fn(&Rejection, &Parts) -> Response<B> + Send + Sync + 'static,
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        Self {
            respond: Some(Closure(Arc::new(move |rejection, parts| {
                respond(rejection, parts).map(local)
            }))),
            log: Arc::default(),
        }
    }

    /// Keeps the part of the request that a later rejection needs.
    pub(crate) fn head(&self, parts: &Parts) -> RequestHead {
        RequestHead {
            method: parts.method.clone(),
            parts: self.respond.is_some().then(|| Box::new(parts.clone())),
        }
    }

    /// Makes the final response; `head` is the kept part of the request.
    pub(crate) fn refuse<R>(
        &self,
        rejection: Rejection,
        head: &RequestHead,
    ) -> Response<ResponseBody<R>> {
        self.log.rejected(&rejection);
        let mut response = match (&self.respond, &head.parts) {
            (Some(respond), Some(parts)) => respond(&rejection, parts),
            _ => rejection.to_response().map(whole),
        };
        if head.method == Method::HEAD {
            leave_out_body(&mut response);
        }
        response.extensions_mut().insert(rejection);
        response.map(ResponseBody::local)
    }
}

/// The head of a request that the handler has consumed.
#[derive(Clone)]
pub(crate) struct RequestHead {
    pub(crate) method: Method,
    /// Kept only for the user's closure.
    parts: Option<Box<Parts>>,
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

const NOT_SERVED: &str = "a request was not served";

/// The log of requests that were not served, or whose outcome is unknown.
#[derive(Debug, Default)]
pub(crate) struct RejectionLog {
    misconfigured: Seldom,
    unavailable: Seldom,
    lost: Seldom,
}

impl RejectionLog {
    /// Logs a rejection with its causes, at most once a minute for each kind that a failure multiplies. What is left out is at
    /// debug.
    pub(crate) fn rejected(&self, rejection: &Rejection) {
        let (error, kind) = (rejection as &dyn Error, rejection.kind());
        let (lines, what) = match kind {
            RejectionKind::Lost => (Some(&self.lost), "a request has an unknown outcome"),
            RejectionKind::Misconfigured => (Some(&self.misconfigured), NOT_SERVED),
            RejectionKind::Unavailable => (Some(&self.unavailable), NOT_SERVED),
            _ => (None, NOT_SERVED),
        };
        match lines.and_then(Seldom::due) {
            None => tracing::debug!(rejection = error, "{what}"),
            Some(left_out) if kind == RejectionKind::Misconfigured => {
                tracing::error!(rejection = error, left_out, "{what}");
            }
            Some(left_out) => tracing::warn!(rejection = error, left_out, "{what}"),
        }
    }
}
