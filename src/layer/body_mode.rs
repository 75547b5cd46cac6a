//! Whether a request's body is read before its lock is requested.

#[cfg(feature = "axum")]
use std::any::{Any, TypeId};
use std::future::{Future, ready};

use bytes::Bytes;
#[cfg(feature = "axum")]
use futures_util::TryFutureExt;
use futures_util::future::Either;
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
    B: Body<Data: Send, Error: Into<BoxError>> + From<Bytes> + Send,
{
    fn reads() -> bool {
        true
    }

    fn take(
        reader: &BodyReader,
        body: B,
    ) -> impl Future<Output = Result<(B, Option<Bytes>), RejectionKind>> + Send {
        if body.is_end_stream() {
            return Either::Left(ready(Ok((body, Some(Bytes::new())))));
        }
        // Boxed, because most requests have no body, and it is large.
        Either::Right(Box::pin(async move {
            let read = reader.read(body).await?;
            Ok((read.clone().into(), Some(read)))
        }))
    }
}

#[cfg(feature = "axum")]
impl<B: Send + 'static> TakeBody<B> for DefaultBody {
    fn reads() -> bool {
        TypeId::of::<B>() == TypeId::of::<axum::body::Body>()
    }

    fn take(
        reader: &BodyReader,
        body: B,
    ) -> impl Future<Output = Result<(B, Option<Bytes>), RejectionKind>> + Send {
        match cast::<B, axum::body::Body>(body) {
            Ok(body) => Either::Left(Buffered::take(reader, body).map_ok(|(body, read)| {
                let same = cast(body).unwrap_or_else(|_| unreachable!("it had this type"));
                (same, read)
            })),
            Err(body) => {
                reader.warn_of_unread::<B>();
                Either::Right(ready(Ok((body, None))))
            }
        }
    }
}

#[cfg(not(feature = "axum"))]
impl<B: Send + 'static> TakeBody<B> for DefaultBody {
    fn reads() -> bool {
        <Streamed as TakeBody<B>>::reads()
    }

    fn take(
        reader: &BodyReader,
        body: B,
    ) -> impl Future<Output = Result<(B, Option<Bytes>), RejectionKind>> + Send {
        Streamed::take(reader, body)
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
