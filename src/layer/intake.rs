//! What happens to a request's body before its lock is asked for.

use std::future::{Future, poll_fn, ready};
use std::pin::pin;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::request::Parts;
use http_body::Body;

use super::rejection::RejectionKind;
use crate::key::RequestBody;

/// Leaves the body where it is, or reads it first. See
/// [`buffer_body`](super::DistributedLockLayer::buffer_body).
pub trait Intake<B>: Send + Sync {
    /// The body that the handler gets. What was read of it is shown to key extractors in `parts`.
    fn take(
        &self,
        body: B,
        parts: &mut Parts,
    ) -> impl Future<Output = Result<B, RejectionKind>> + Send;
}

/// The handler reads the body while the lock is held. The default.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Streamed;

impl<B: Send> Intake<B> for Streamed {
    fn take(
        &self,
        body: B,
        _: &mut Parts,
    ) -> impl Future<Output = Result<B, RejectionKind>> + Send {
        ready(Ok(body))
    }
}

/// The body is read before the lock is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Buffered {
    limit: usize,
}

impl Buffered {
    pub(super) fn up_to(limit: usize) -> Self {
        Self { limit }
    }
}

impl<B> Intake<B> for Buffered
where
    B: Body<Data: Send> + From<Bytes> + Send,
{
    async fn take(&self, body: B, parts: &mut Parts) -> Result<B, RejectionKind> {
        let read = read(body, self.limit).await?;
        parts.extensions.insert(RequestBody(read.clone()));
        Ok(read.into())
    }
}

/// Reads a body to its end, at most `limit` bytes. Trailers are dropped.
pub(crate) async fn read<B>(body: B, limit: usize) -> Result<Bytes, RejectionKind>
where
    B: Body,
{
    if body.size_hint().lower() > limit as u64 {
        return Err(RejectionKind::BodyTooLarge);
    }
    let mut body = pin!(body);
    let mut read = BytesMut::new();
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        let frame = frame.map_err(|_| RejectionKind::BodyUnreadable)?;
        if let Ok(data) = frame.into_data() {
            if data.remaining() > limit - read.len() {
                return Err(RejectionKind::BodyTooLarge);
            }
            read.put(data);
        }
    }
    Ok(read.freeze())
}
