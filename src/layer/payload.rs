//! The key of a request, and its body, which is read where the key is in it.

use std::future::{Future, ready};

use bytes::Bytes;
use futures_util::TryFutureExt;
use futures_util::future::Either;
use http::request::Parts;

use super::body_mode::BodyMode;
use super::body_reader::BodyReader;
use super::rejection::Rejection;
use crate::key::{KeyError, KeyExtractor, Keys, RequestBody};

/// A request's body, before and after it was read.
pub(crate) enum Payload<B> {
    Unread(B),
    /// With its bytes, if they are known.
    Read(B, Option<Bytes>),
}

impl<B> Payload<B> {
    pub(crate) fn into_inner(self) -> B {
        match self {
            Self::Unread(body) | Self::Read(body, _) => body,
        }
    }

    /// The body as the mode takes it, and its bytes if the mode reads it.
    pub(crate) fn take<M: BodyMode<B>>(
        self,
        reader: &BodyReader,
    ) -> impl Future<Output = Result<(B, Option<Bytes>), Rejection>> + Send
    where
        B: Send,
    {
        match self {
            Self::Unread(body) => Either::Left(M::take(reader, body).map_err(Rejection::new)),
            Self::Read(body, read) => Either::Right(ready(Ok((body, read)))),
        }
    }
}

/// The keys, or why there are none. Reads the body if the keys are in it.
pub(crate) async fn extract<M: BodyMode<B>, B: Send>(
    key: &impl KeyExtractor,
    reader: &BodyReader,
    parts: &mut Parts,
    body: B,
) -> Result<(Result<Keys, KeyError>, Payload<B>), Rejection> {
    if M::reads() {
        // A layer further out may have read another body.
        parts.extensions.remove::<RequestBody>();
    }
    let found = key.extract(parts).await;
    if !M::reads() || !found.as_ref().is_err_and(KeyError::is_body_unread) {
        return Ok((found, Payload::Unread(body)));
    }
    let (body, read) = Payload::Unread(body).take::<M>(reader).await?;
    let bytes = read.clone().unwrap_or_default();
    parts.extensions.insert(RequestBody(bytes));
    Ok((key.extract(parts).await, Payload::Read(body, read)))
}
