//! Turns a response into its record.

use bytes::{Buf, Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Response, StatusCode, response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, BodyStream, StreamBody};

use super::identity::Fingerprint;
use super::record::Recorded;
use super::settings::IdempotencySettings;
use crate::error::BoxError;
use crate::layer::{LocalBody, ResponseBody, local, whole};
use crate::limits::FOR_EVER;
use crate::store::Record;

impl IdempotencySettings {
    /// Reads a final response, and makes its record. `None`: the response is sent unrecorded.
    pub(super) async fn record_response<R>(
        &self,
        response: Response<R>,
        fingerprint: Fingerprint,
    ) -> (Response<ResponseBody<R>>, Option<Record>)
    where
        R: Body<Error: Into<BoxError>> + Send + 'static,
    {
        let (mut parts, body) = response.into_parts();
        if !self.is_final(&parts) {
            return (unread(parts, body), None);
        }
        let length = match length(&parts, &body) {
            Ok(length) if length <= self.response_limit as u64 => length as usize,
            Ok(length) => {
                self.warn(&parts, Some(length), "it is too long");
                return (unread(parts, body), None);
            }
            Err(reason) => {
                self.warn(&parts, None, reason);
                parts.headers.remove(CONTENT_LENGTH);
                return (unread(parts, body), None);
            }
        };
        let (body, record) = match collect(body, length).await {
            Ok(body) => {
                let cookies = self.record_cookies;
                let recorded = Recorded::new(fingerprint, &parts, body.clone(), cookies);
                let retention = self.retention.min(FOR_EVER);
                (whole(body), Some(Record::new(recorded.encode(), retention)))
            }
            Err(body) => {
                self.warn(&parts, Some(length as u64), "it did not end at its length");
                // A wrong length would split the response in two.
                parts.headers.remove(CONTENT_LENGTH);
                (body, None)
            }
        };
        let response = Response::from_parts(parts, ResponseBody::local(body));
        (response, record)
    }

    /// Logs a warning once a minute, and a debug line each time, that a response is not recorded.
    fn warn(&self, parts: &response::Parts, length: Option<u64>, reason: &'static str) {
        let status = parts.status.as_u16();
        let limit = self.response_limit;
        match self.warned.due() {
            Some(left_out) => tracing::warn!(
                reason,
                status,
                length,
                limit,
                left_out,
                "a response is not recorded: a repeat of its request runs again"
            ),
            None => tracing::debug!(reason, status, length, limit, "a response is not recorded"),
        }
    }
}

/// The handler's response, unchanged.
fn unread<R>(parts: response::Parts, body: R) -> Response<ResponseBody<R>> {
    Response::from_parts(parts, ResponseBody::handlers(body))
}

/// The length of a body, from the head and the body's size hint.
///
/// # Errors
///
/// Why a response without such a length is not recorded.
fn length<R: Body>(parts: &response::Parts, body: &R) -> Result<u64, &'static str> {
    let exact = body.size_hint().exact();
    let without_body = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED];
    if without_body.contains(&parts.status) && exact == Some(0) {
        // A `Content-Length` beside such a status is the length of another response (RFC 9110, 8.6).
        return Ok(0);
    }
    let mut lines = parts.headers.get_all(CONTENT_LENGTH).iter();
    let Some(line) = lines.next() else {
        return exact.ok_or("it is a stream");
    };
    in_digits(line)
        .filter(|length| lines.next().is_none() && exact.is_none_or(|exact| exact == *length))
        .ok_or("its `Content-Length` is not the length of its body")
}

/// Digits only: `parse` also accepts a sign.
fn in_digits(value: &HeaderValue) -> Option<u64> {
    let text = value.to_str().ok()?;
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// Reads `body`, whose length should be exactly `length` bytes.
///
/// # Errors
///
/// The body, to be sent from its beginning, if it failed, had trailers, or was longer or shorter. Its length is unknown.
async fn collect<R>(body: R, length: usize) -> Result<Bytes, LocalBody>
where
    R: Body<Error: Into<BoxError>> + Send + 'static,
{
    let body =
        body.map_frame(|frame| frame.map_data(|mut data| data.copy_to_bytes(data.remaining())));
    let frames = BodyStream::new(body.map_err(Into::into));
    // A body is not polled after its end.
    let mut frames = Box::pin(StreamExt::fuse(frames));
    let mut read = BytesMut::with_capacity(length);
    let next = loop {
        let next = frames.next().await;
        let data = match &next {
            Some(Ok(frame)) => frame.data_ref(),
            _ => None,
        };
        match data {
            Some(data) if data.len() <= length - read.len() => read.extend_from_slice(data),
            None if next.is_none() && read.len() == length => return Ok(read.freeze()),
            _ => break next,
        }
    };
    let read = (!read.is_empty()).then(|| Ok(Frame::data(read.freeze())));
    let frames = stream::iter(read).chain(stream::iter(next)).chain(frames);
    Err(local(StreamBody::new(frames)))
}
