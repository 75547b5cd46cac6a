//! Whether a request's body is read before its lock is requested.

#[cfg(feature = "axum")]
use std::any::Any;

use bytes::Bytes;
use http_body::Body;

use super::body_reader::BodyReader;
use super::rejection::RejectionKind;
use crate::error::BoxError;
use sealed::TakeBody;

/// Whether a request's body is read before its lock is requested: [`DefaultBody`], [`Buffered`] or [`Streamed`].
///
/// Chosen by [`buffer_body`](super::DistributedLockLayer::buffer_body) and
/// [`stream_body`](super::DistributedLockLayer::stream_body). The trait is sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot serve requests with the body `{B}`",
    note = "`buffer_body` needs a body that is made of `Bytes`, as `axum::body::Body` is; call `stream_body` for others",
    note = "on axum, put layers that change the request's body (a limit, a time-out, decompression) into a `.layer` call of their \
            own, or `.map_request(|request: Request<_>| request.map(Body::new))` before this layer"
)]
pub trait BodyMode<B>: TakeBody<B> + Send + Sync + 'static {}

#[diagnostic::do_not_recommend]
impl<B, M: TakeBody<B> + Send + Sync + 'static> BodyMode<B> for M {}

/// `axum::body::Body` is read before the lock is requested, at most 2 MiB. The handler reads every other body itself, while
/// the lock is held, and the first one is logged as a warning; without the feature `axum` it reads every body itself. The default.
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
        /// The body for the handler, and its bytes if it was read.
        fn take(
            reader: &BodyReader,
            body: B,
        ) -> impl Future<Output = Result<(B, Option<Bytes>), RejectionKind>> + Send;
    }
}

impl<B: Send> TakeBody<B> for Streamed {
    async fn take(_: &BodyReader, body: B) -> Result<(B, Option<Bytes>), RejectionKind> {
        Ok((body, None))
    }
}

impl<B> TakeBody<B> for Buffered
where
    B: Body<Data: Send, Error: Into<BoxError>> + From<Bytes> + Send,
{
    async fn take(reader: &BodyReader, body: B) -> Result<(B, Option<Bytes>), RejectionKind> {
        if body.is_end_stream() {
            return Ok((body, Some(Bytes::new())));
        }
        // Boxed, because most requests have no body, and it is large.
        let read = Box::pin(reader.read(body)).await?;
        Ok((read.clone().into(), Some(read)))
    }
}

impl<B: Send + 'static> TakeBody<B> for DefaultBody {
    #[cfg(feature = "axum")]
    async fn take(reader: &BodyReader, body: B) -> Result<(B, Option<Bytes>), RejectionKind> {
        match cast::<B, axum::body::Body>(body) {
            Ok(body) => {
                let (body, read) = Buffered::take(reader, body).await?;
                let body = cast(body).unwrap_or_else(|_| unreachable!("it had this type"));
                Ok((body, read))
            }
            Err(body) => {
                reader.warn_of_unread::<B>();
                Ok((body, None))
            }
        }
    }

    #[cfg(not(feature = "axum"))]
    async fn take(reader: &BodyReader, body: B) -> Result<(B, Option<Bytes>), RejectionKind> {
        Streamed::take(reader, body).await
    }
}

/// `value`, if it has the type `T`; else `value` itself.
#[cfg(feature = "axum")]
fn cast<V: 'static, T: 'static>(value: V) -> Result<T, V> {
    let mut value = Some(value);
    let same = (&mut value as &mut dyn Any).downcast_mut::<Option<T>>();
    match same.and_then(Option::take) {
        Some(same) => Ok(same),
        None => Err(value.expect("only a value of the other type is taken out")),
    }
}
