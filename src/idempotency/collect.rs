//! Reads a response to its end. If that fails, the client still gets the response.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderValue, StatusCode, response};
use http_body::{Body, Frame};

use crate::error::BoxError;
use crate::layer::poll_bytes;

/// The length of a body, from the head and the body's size hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Length {
    Known(u64),
    Unknown,
    /// The head and the body contradict each other, or the head names no single length.
    Contradictory,
}

impl Length {
    pub(super) fn of<R: Body>(parts: &response::Parts, body: &R) -> Self {
        let exact = body.size_hint().exact();
        if has_no_body(parts.status) && exact == Some(0) {
            return Self::Known(0);
        }
        match (declared(&parts.headers), exact) {
            (Err(NotOneLength), _) => Self::Contradictory,
            (Ok(Some(declared)), Some(exact)) if declared != exact => Self::Contradictory,
            (Ok(declared), exact) => declared.or(exact).map_or(Self::Unknown, Self::Known),
        }
    }
}

/// Whether a `Content-Length` beside this status is the length of another response (RFC 9110, 8.6).
pub(super) fn has_no_body(status: StatusCode) -> bool {
    matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// The headers name several lengths, or one that is not in digits.
pub(super) struct NotOneLength;

/// The length that the headers name.
pub(super) fn declared(headers: &HeaderMap) -> Result<Option<u64>, NotOneLength> {
    let mut lines = headers.get_all(CONTENT_LENGTH).iter();
    match (lines.next(), lines.next()) {
        (None, _) => Ok(None),
        (Some(line), None) => in_digits(line).map(Some).ok_or(NotOneLength),
        (Some(_), Some(_)) => Err(NotOneLength),
    }
}

/// Digits only: `parse` also accepts a sign.
fn in_digits(value: &HeaderValue) -> Option<u64> {
    let text = value.to_str().ok()?;
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// The result of reading a body.
pub(super) enum Collected<R> {
    /// It ended at its length.
    Whole(Bytes),
    /// It failed, had trailers, or was longer or shorter than expected. The body is to be sent from its beginning, and
    /// its length is unknown.
    Part(Resumed<R>),
}

/// Reads `body`, whose length should be exactly `length` bytes.
pub(super) async fn collect<R>(body: R, length: usize) -> Collected<R>
where
    R: Body<Error: Into<BoxError>>,
{
    let mut rest = Box::pin(body);
    let mut read = BytesMut::with_capacity(length);
    let next = loop {
        let next = poll_fn(|cx| poll_bytes(rest.as_mut(), cx)).await;
        match next.map(|next| next.map(Frame::into_data)) {
            Some(Ok(Ok(data))) if data.len() <= length - read.len() => {
                read.extend_from_slice(&data);
            }
            None if read.len() == length => return Collected::Whole(read.freeze()),
            None => break None,
            Some(Ok(Ok(data))) => break Some(Ok(Frame::data(data))),
            Some(Ok(Err(frame))) => break Some(Ok(frame)),
            Some(Err(error)) => break Some(Err(error)),
        }
    };
    Collected::Part(Resumed {
        read: read.freeze(),
        has_ended: next.is_none(),
        next,
        rest,
    })
}

/// A body that was read in part. It starts again with the part that was read.
pub(super) struct Resumed<R> {
    read: Bytes,
    next: Option<Result<Frame<Bytes>, BoxError>>,
    /// The body inside is not polled after its end.
    has_ended: bool,
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
            None if self.has_ended => Poll::Ready(None),
            None => poll_bytes(self.rest.as_mut(), cx),
        }
    }
}
