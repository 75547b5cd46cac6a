use std::borrow::Cow;

use bytes::Bytes;
use http::Response;
use http_body::Body;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;

use crate::error::BoxError;

/// Why a request has no key.
#[derive(Debug)]
pub struct KeyError(Cause);

#[derive(Debug)]
pub(crate) enum Cause {
    /// With a description of the missing key, if the extractor gives one.
    Missing(Option<Cow<'static, str>>),
    Invalid(&'static str),
    /// Missing, because the route of the program does not have the parameter.
    #[cfg(feature = "axum")]
    NotOfTheRoute(String),
    BodyUnread,
    Response(Box<Response<UnsyncBoxBody<Bytes, BoxError>>>),
}

impl KeyError {
    /// The request has no key; [`OnMissing`](crate::OnMissing) decides about it.
    pub fn missing() -> Self {
        Self(Cause::Missing(None))
    }

    /// The same, with a reason. A refused client gets the reason in the answer.
    pub(crate) fn missing_because(reason: impl Into<Cow<'static, str>>) -> Self {
        Self(Cause::Missing(Some(reason.into())))
    }

    /// No request of this route has a key. This is an error in the program, unless [`OnMissing`](crate::OnMissing) decides
    /// otherwise.
    #[cfg(feature = "axum")]
    pub(super) fn not_of_the_route(reason: String) -> Self {
        Self(Cause::NotOfTheRoute(reason))
    }

    /// The request's key is invalid: 400 `key-invalid`. The client gets `reason` in the answer.
    pub fn invalid(reason: &'static str) -> Self {
        Self(Cause::Invalid(reason))
    }

    /// The request is answered with `response`.
    pub fn response<B>(response: Response<B>) -> Self
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let response = response.map(|body| body.map_err(Into::into).boxed_unsync());
        Self(Cause::Response(Box::new(response)))
    }

    /// The key is in the body, which is not read yet.
    pub(super) fn body_unread() -> Self {
        Self(Cause::BodyUnread)
    }

    pub(crate) fn is_body_unread(&self) -> bool {
        matches!(self.0, Cause::BodyUnread)
    }

    pub(crate) fn is_missing(&self) -> bool {
        self.is_of_the_program() || matches!(self.0, Cause::Missing(_))
    }

    /// Whether no request of the route has a key.
    pub(crate) fn is_of_the_program(&self) -> bool {
        match self.0 {
            #[cfg(feature = "axum")]
            Cause::NotOfTheRoute(_) => true,
            _ => false,
        }
    }

    pub(crate) fn into_cause(self) -> Cause {
        self.0
    }
}
