//! Answers to requests that are not served.

use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{HeaderValue, Method, Response};
use http_body::Body;

use super::body::{LocalBody, ResponseBody, local};
use super::rejection::{Refusal, Rejection, RejectionKind};
use crate::error::BoxError;

type Respond = dyn Fn(&Rejection, &Parts) -> Response<LocalBody> + Send + Sync;

/// Makes responses of rejections: the layer's own, or what the user's closure makes of them.
#[derive(Clone, Default)]
pub(crate) struct Responder(Option<Arc<Respond>>);

impl Responder {
    pub(crate) fn new<F, B>(respond: F) -> Self
    where
        F: Fn(&Rejection, &Parts) -> Response<B> + Send + Sync + 'static,
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        Self(Some(Arc::new(move |rejection, parts| {
            respond(rejection, parts).map(local)
        })))
    }

    /// Remembers what a later rejection needs of the request.
    pub(crate) fn witness(&self, parts: &Parts) -> Witness {
        Witness {
            method: parts.method.clone(),
            parts: self.0.is_some().then(|| Box::new(parts.clone())),
        }
    }

    /// Answers for good; `witness` is what is left of the request.
    pub(crate) fn refuse<R>(
        &self,
        refusal: Refusal,
        witness: &Witness,
    ) -> Response<ResponseBody<R>> {
        let response = match refusal {
            Refusal::Response(response) => *response,
            Refusal::Rejection(rejection) => {
                log(&rejection);
                self.reject(rejection, witness)
            }
        };
        response.map(ResponseBody::local)
    }

    fn reject(&self, rejection: Rejection, witness: &Witness) -> Response<LocalBody> {
        let mut response = match (&self.0, &witness.parts) {
            (Some(respond), Some(parts)) => respond(&rejection, parts),
            _ => rejection.to_response().map(local),
        };
        if witness.method == Method::HEAD {
            leave_out_body(&mut response);
        }
        response.extensions_mut().insert(rejection);
        response
    }
}

/// What is remembered of a request that the handler has consumed.
#[derive(Clone)]
pub(crate) struct Witness {
    pub(crate) method: Method,
    /// Kept only for those who asked to see it.
    parts: Option<Box<Parts>>,
}

/// Keeps the length of the body that is left out: a server would count none, and say 0 (RFC 9110, 8.6 forbids that).
fn leave_out_body(response: &mut Response<LocalBody>) {
    let body = std::mem::replace(response.body_mut(), local(String::new()));
    if let Some(length) = body.size_hint().exact() {
        let length = HeaderValue::from(length);
        response
            .headers_mut()
            .entry(CONTENT_LENGTH)
            .or_insert(length);
    }
}

/// Logs it with its causes: that a store refused is no news without what it said.
fn log(rejection: &Rejection) {
    let kind = rejection.kind();
    let rejection = rejection as &dyn Error;
    match kind {
        RejectionKind::Misconfigured => tracing::error!(rejection, "a request was not served"),
        RejectionKind::Unavailable | RejectionKind::Lost => {
            tracing::warn!(rejection, "a request was not served");
        }
        _ => tracing::debug!(rejection, "a request was not served"),
    }
}
