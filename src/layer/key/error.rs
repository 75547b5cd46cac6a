use std::borrow::Cow;

use bytes::Bytes;
use http::Response;
use http_body::Body;

use crate::error::LockError;
use crate::layer::body::{BoxError, LocalBody};
use crate::layer::rejection::{Refusal, Rejection, RejectionKind};

/// Why a request names no key.
#[derive(Debug)]
pub struct KeyError(Cause);

#[derive(Debug)]
enum Cause {
    /// Perhaps with what would have been one.
    Missing(Option<Cow<'static, str>>),
    Invalid(&'static str),
    BodyUnread,
    Response(Box<Response<LocalBody>>),
}

impl KeyError {
    /// There is none: the business of [`OnMissing`](crate::OnMissing).
    pub fn missing() -> Self {
        Self(Cause::Missing(None))
    }

    /// The same; a client that is refused gets to read what it should have sent.
    pub(crate) fn missing_because(reason: impl Into<Cow<'static, str>>) -> Self {
        Self(Cause::Missing(Some(reason.into())))
    }

    /// What is there names nothing: 400 `key-invalid`. The client gets to read `reason`.
    pub fn invalid(reason: &'static str) -> Self {
        Self(Cause::Invalid(reason))
    }

    /// The request is answered with `response`.
    pub fn response<B>(response: Response<B>) -> Self
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        Self(Cause::Response(Box::new(response.map(LocalBody::new))))
    }

    /// It is in the body, which nobody has read yet.
    pub(super) fn body_unread() -> Self {
        Self(Cause::BodyUnread)
    }

    pub(crate) fn is_body_unread(&self) -> bool {
        matches!(self.0, Cause::BodyUnread)
    }

    pub(crate) fn is_missing(&self) -> bool {
        matches!(self.0, Cause::Missing(_))
    }

    pub(crate) fn into_refusal(self) -> Refusal {
        match self.0 {
            Cause::Missing(reason) => {
                let rejection = Rejection::new(RejectionKind::KeyMissing);
                match reason {
                    Some(reason) => rejection.with_detail(reason).into(),
                    None => rejection.into(),
                }
            }
            Cause::Invalid(reason) => Rejection::new(RejectionKind::KeyInvalid)
                .with_detail(reason)
                .into(),
            Cause::BodyUnread => LockError::Invalid(
                "the key is in the request's body, which was not read: call `buffer_body` on the layer",
            )
            .into(),
            Cause::Response(mut response) => {
                let rejection =
                    Rejection::new(RejectionKind::KeyRejected).with_status(response.status());
                response.extensions_mut().insert(rejection);
                Refusal::Response(response)
            }
        }
    }
}
