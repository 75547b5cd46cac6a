//! Response bodies.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use pin_project_lite::pin_project;

use super::settings::{Confirm, OnLost};
use crate::error::BoxError;
use crate::guard::LockGuard;

mod hold;

use hold::BodyLock;

/// A body that the layer made itself.
#[derive(Debug)]
pub(crate) enum LocalBody {
    Whole(Full<Bytes>),
    Other(UnsyncBoxBody<Bytes, BoxError>),
}

/// Boxes a body that the layer made itself.
pub(crate) fn local<B>(body: B) -> LocalBody
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    LocalBody::Other(body.map_err(Into::into).boxed_unsync())
}

/// A body that is there already.
pub(crate) fn whole(body: impl Into<Bytes>) -> LocalBody {
    LocalBody::Whole(Full::new(body.into()))
}

impl Body for LocalBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Whole(body) => poll_bytes(Pin::new(body), cx),
            Self::Other(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Other(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Other(body) => body.size_hint(),
        }
    }
}

pin_project! {
    /// The body of a response that came through a [`DistributedLock`](super::DistributedLock).
    ///
    /// It is the handler's body, unchanged or with the lock inside ([`ReleaseOn::BodyEnd`](super::ReleaseOn::BodyEnd)),
    /// or the body of the layer's own response.
    pub struct ResponseBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProjected]
    enum Kind<B> {
        Handlers { #[pin] body: B },
        // The lock is boxed: most bodies have none, and each of them would be as large.
        Guarded { #[pin] body: B, hold: Box<BodyLock> },
        Local { body: LocalBody },
    }
}

impl<B> ResponseBody<B> {
    /// The handler's body, without a lock.
    pub(crate) fn handlers(body: B) -> Self {
        Self {
            kind: Kind::Handlers { body },
        }
    }

    /// A body of the layer.
    pub(crate) fn local(body: LocalBody) -> Self {
        Self {
            kind: Kind::Local { body },
        }
    }

    /// The handler's body under the lock. `length` is the declared length: a reader that has so many bytes does not poll
    /// again.
    pub(super) fn guarded(
        body: B,
        guard: LockGuard,
        length: Option<u64>,
        how: Confirm,
        on_lost: OnLost,
    ) -> Self {
        let hold = Box::new(BodyLock::new(guard, length, how, on_lost));
        Self {
            kind: Kind::Guarded { body, hold },
        }
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
        match self.project().kind.project() {
            KindProjected::Handlers { body } => poll_bytes(body, cx),
            KindProjected::Guarded { body, hold } => hold.poll_frame(body, cx),
            KindProjected::Local { body } => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Handlers { body } => body.is_end_stream(),
            Kind::Guarded { body, hold } => hold.has_ended(body),
            Kind::Local { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Handlers { body } => body.size_hint(),
            Kind::Guarded { body, hold } => hold.size_hint(body.size_hint()),
            Kind::Local { body } => body.size_hint(),
        }
    }
}

impl<B> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").finish_non_exhaustive()
    }
}

/// Polls a body with any data type; `Bytes` are not copied.
pub(crate) fn poll_bytes<B>(
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
