//! Response bodies.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Either, Full};
use pin_project_lite::pin_project;

use crate::error::BoxError;

mod hold;

pub(super) use hold::guarded;

/// A body that the layer made itself: one that is there already, or another one.
pub(crate) type LocalBody = Either<Full<Bytes>, UnsyncBoxBody<Bytes, BoxError>>;

/// Boxes a body that the layer made itself.
pub(crate) fn local<B>(body: B) -> LocalBody
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    Either::Right(body.map_err(Into::into).boxed_unsync())
}

/// A body that is there already.
pub(crate) fn whole(body: impl Into<Bytes>) -> LocalBody {
    Either::Left(Full::new(body.into()))
}

pin_project! {
    /// The body of a response that came through a [`DistributedLock`](super::DistributedLock).
    ///
    /// It is the handler's body, unchanged or with the lock inside ([`ReleaseOn::BodyEnd`](super::ReleaseOn::BodyEnd)),
    /// or the body of the layer's own response.
    ///
    /// Its data are [`Bytes`], as those of the bodies of axum, hyper and tonic; a handler's body with other data goes through
    /// [`map_frame`](BodyExt::map_frame) first.
    pub struct ResponseBody<B> {
        #[pin]
        body: Either<B, LocalBody>,
    }
}

impl<B> ResponseBody<B> {
    /// The handler's body, without a lock.
    pub(crate) fn handlers(body: B) -> Self {
        let body = Either::Left(body);
        Self { body }
    }

    /// A body of the layer.
    pub(crate) fn local(body: LocalBody) -> Self {
        let body = Either::Right(body);
        Self { body }
    }
}

/// The body of a response of a layer further out, such as a time-out or CORS, which makes an empty one.
impl<B: Default> Default for ResponseBody<B> {
    fn default() -> Self {
        Self::handlers(B::default())
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.project().body.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").finish_non_exhaustive()
    }
}
