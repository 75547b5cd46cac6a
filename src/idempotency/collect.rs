//! Reads a response to its end. If that fails, the client still gets the response.

use std::future::poll_fn;

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderValue, StatusCode, response};
use http_body::{Body, Frame};
use http_body_util::StreamBody;

use crate::error::BoxError;
use crate::layer::{LocalBody, local, poll_bytes};

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
fn has_no_body(status: StatusCode) -> bool {
    matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// The headers name several lengths, or one that is not in digits.
struct NotOneLength;

/// The length that the headers name.
fn declared(headers: &HeaderMap) -> Result<Option<u64>, NotOneLength> {
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
pub(super) enum Collected {
    /// It ended at its length.
    Whole(Bytes),
    /// It failed, had trailers, or was longer or shorter than expected. It is to be sent from its beginning, and its length is
    /// unknown.
    Part(LocalBody),
}

/// Reads `body`, whose length should be exactly `length` bytes.
pub(super) async fn collect<R>(body: R, length: usize) -> Collected
where
    R: Body<Error: Into<BoxError>> + Send + 'static,
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
    // A body is not polled after its end.
    let rest = next
        .is_some()
        .then(|| stream::poll_fn(move |cx| poll_bytes(rest.as_mut(), cx)));
    let read = (!read.is_empty()).then(|| Ok(Frame::data(read.freeze())));
    let frames = stream::iter(read).chain(stream::iter(next));
    let frames = frames.chain(stream::iter(rest).flatten());
    Collected::Part(local(StreamBody::new(frames)))
}
