//! Whether a request's body is read before its lock is requested.

use bytes::Bytes;
use http_body::Body;

use super::body_reader::BodyReader;
use super::rejection::RejectionKind;
use sealed::TakeBody;

/// Whether a request's body is read before its lock is requested: [`DefaultBody`], [`Buffered`] or [`Streamed`].
///
/// Chosen by [`buffer_body`](super::DistributedLockLayer::buffer_body) and
/// [`stream_body`](super::DistributedLockLayer::stream_body). The trait is sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot serve requests with the body `{B}`",
    note = "`buffer_body` needs a body that is made of `Bytes`, as `axum::body::Body` is; call `stream_body` for others"
)]
pub trait BodyMode<B>: TakeBody<B> + Send + Sync + 'static {}

impl<B, M: TakeBody<B> + Send + Sync + 'static> BodyMode<B> for M {}

/// `axum::body::Body` is read before the lock is requested, at most 2 MiB. The handler reads every other body itself, while
/// the lock is held. The default.
#[derive(Debug, Clone, Copy)]
pub enum DefaultBody {}

/// The body is read before the lock is requested.
#[derive(Debug, Clone, Copy)]
pub enum Buffered {}

/// The handler reads the body, while the lock is held.
#[derive(Debug, Clone, Copy)]
pub enum Streamed {}

mod sealed {
    use super::{BodyReader, Bytes, RejectionKind};

    /// How the layer takes a body.
    pub trait TakeBody<B> {
        /// Whether such a body is read.
        fn reads() -> bool;

        /// The body for the handler, and the bytes that were read.
        fn take(
            reader: &BodyReader,
            body: B,
        ) -> impl Future<Output = Result<(B, Option<Bytes>), RejectionKind>> + Send;
    }
}

impl<B: Send> TakeBody<B> for Streamed {
    fn reads() -> bool {
        false
    }

    async fn take(_: &BodyReader, body: B) -> Result<(B, Option<Bytes>), RejectionKind> {
        Ok((body, None))
    }
}

impl<B> TakeBody<B> for Buffered
where
    B: Body<Data: Send> + From<Bytes> + Send,
{
    fn reads() -> bool {
        true
    }

    async fn take(reader: &BodyReader, body: B) -> Result<(B, Option<Bytes>), RejectionKind> {
        if body.is_end_stream() {
            return Ok((body, Some(Bytes::new())));
        }
        // Boxed, because most requests have no body, and it is large.
        let read = Box::pin(reader.read(body)).await?;
        Ok((read.clone().into(), Some(read)))
    }
}

#[cfg(not(feature = "axum"))]
impl<B: Send> TakeBody<B> for DefaultBody {
    fn reads() -> bool {
        false
    }

    async fn take(_: &BodyReader, body: B) -> Result<(B, Option<Bytes>), RejectionKind> {
        Ok((body, None))
    }
}

#[cfg(feature = "axum")]
impl<B: Send + 'static> TakeBody<B> for DefaultBody {
    fn reads() -> bool {
        std::any::TypeId::of::<B>() == std::any::TypeId::of::<axum::body::Body>()
    }

    async fn take(reader: &BodyReader, body: B) -> Result<(B, Option<Bytes>), RejectionKind> {
        const THERE: &str = "the body is put back";
        let mut body = Some(body);
        let axum = (&mut body as &mut dyn std::any::Any).downcast_mut::<Option<axum::body::Body>>();
        let read = match axum {
            Some(axum) if axum.as_ref().is_some_and(Body::is_end_stream) => Some(Bytes::new()),
            Some(axum) => {
                let unread = axum.take().expect(THERE);
                // Boxed, because most requests have no body, and it is large.
                let read = Box::pin(reader.read(unread)).await?;
                *axum = Some(read.clone().into());
                Some(read)
            }
            None => None,
        };
        Ok((body.expect(THERE), read))
    }
}
