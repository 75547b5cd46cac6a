//! Reading a response to its end, without keeping it from the client if that fails.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_LENGTH;
use http::response;
use http_body::{Body, Frame};

use crate::error::BoxError;
use crate::layer::poll_bytes;

/// What became of a body.
pub(super) enum Collected<R> {
    /// All of it.
    Whole(Bytes),
    /// What cannot be kept: it broke off, had trailers, or was longer than it had said.
    Part(Resumed<R>),
}

/// How long the body is going to be, as far as that is known.
pub(super) fn length<R: Body>(parts: &response::Parts, body: &R) -> Option<u64> {
    let header = parts.headers.get(CONTENT_LENGTH);
    body.size_hint()
        .exact()
        .or_else(|| header.and_then(|length| length.to_str().ok()?.parse().ok()))
}

/// Reads `body`, which is to have at most `limit` bytes.
pub(super) async fn collect<R>(body: R, limit: usize) -> Collected<R>
where
    R: Body<Error: Into<BoxError>>,
{
    let mut rest = Box::pin(body);
    let mut read = BytesMut::new();
    while let Some(next) = poll_fn(|cx| poll_bytes(rest.as_mut(), cx)).await {
        let next = match next.map(Frame::into_data) {
            Ok(Ok(data)) if data.len() <= limit - read.len() => {
                read.extend_from_slice(&data);
                continue;
            }
            Ok(Ok(data)) => Ok(Frame::data(data)),
            Ok(Err(frame)) => Ok(frame),
            Err(error) => Err(error),
        };
        return Collected::Part(Resumed {
            read: read.freeze(),
            next: Some(next),
            rest,
        });
    }
    Collected::Whole(read.freeze())
}

/// A body that was read in part, from its beginning.
pub(super) struct Resumed<R> {
    read: Bytes,
    next: Option<Result<Frame<Bytes>, BoxError>>,
    rest: Pin<Box<R>>,
}

impl<R> Body for Resumed<R>
where
    R: Body<Error: Into<BoxError>>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if !self.read.is_empty() {
            let read = std::mem::take(&mut self.read);
            return Poll::Ready(Some(Ok(Frame::data(read))));
        }
        match self.next.take() {
            Some(next) => Poll::Ready(Some(next)),
            None => poll_bytes(self.rest.as_mut(), cx),
        }
    }
}
