//! Response bodies.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use futures_util::future;
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
    pub struct ResponseBody<B> {
        #[pin]
        body: future::Either<B, LocalBody>,
    }
}

impl<B> ResponseBody<B> {
    /// The handler's body, without a lock.
    pub(crate) fn handlers(body: B) -> Self {
        let body = future::Either::Left(body);
        Self { body }
    }

    /// A body of the layer.
    pub(crate) fn local(body: LocalBody) -> Self {
        let body = future::Either::Right(body);
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
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.project().body.as_pin_mut() {
            future::Either::Left(body) => poll_bytes(body, cx),
            future::Either::Right(body) => body.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            future::Either::Left(body) => body.is_end_stream(),
            future::Either::Right(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            future::Either::Left(body) => body.size_hint(),
            future::Either::Right(body) => body.size_hint(),
        }
    }
}

impl<B> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").finish_non_exhaustive()
    }
}

/// Polls a body with any data type; `Bytes` are not copied.
fn poll_bytes<B>(
    body: Pin<&mut B>,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, BoxError>>>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    body.poll_frame(cx).map(|frame| {
        frame.map(|frame| match frame {
            Ok(frame) => Ok(frame.map_data(|mut data| data.copy_to_bytes(data.remaining()))),
            Err(error) => Err(error.into()),
        })
    })
}
