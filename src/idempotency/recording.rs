//! Turns a response into its record.

use bytes::{Buf, Bytes, BytesMut};
use futures_util::{Stream, StreamExt, stream};
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Response, StatusCode, response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use tokio::time::{Instant, timeout_at};

use super::fingerprint::Fingerprint;
use super::record::Recorded;
use super::settings::IdempotencySettings;
use crate::error::BoxError;
use crate::layer::{Rejection, ResponseBody, local, whole};
use crate::limits::{FOR_EVER, LAST_MOMENT};
use crate::store::Record;

/// Says whether a response is recorded, in place of [`record_if`](super::IdempotencyLayer::record_if). A handler puts it into the
/// extensions of its response.
///
/// The answers of this crate's layers and upgrades (101) are not recorded even so, and neither is a body that is too long or a
/// stream.
///
/// ```
/// # #[cfg(feature = "axum")] {
/// use axum::Extension;
/// use axum::response::IntoResponse;
/// use http::StatusCode;
/// use tower_distributed_lock::idempotency::Recording;
///
/// async fn pay() -> impl IntoResponse {
///     // The bank will not change its mind: a repeat must not ask again.
///     (StatusCode::FORBIDDEN, Extension(Recording::Always), "the account is closed")
/// }
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recording {
    /// It is recorded, and repeats get it.
    Always,
    /// It is recorded with its `Set-Cookie`, so that every repeat sets the cookies of the first response. Use it only if every client
    /// that knows the key may have this session.
    WithCookies,
    /// It is not recorded, and a repeat runs again.
    Never,
}

/// Why a response is sent without being recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Unrecorded {
    #[error("it is too long")]
    TooLong,
    #[error("it is a stream")]
    Stream,
    #[error("it has trailers")]
    Trailers,
    #[error("it broke off")]
    BrokeOff,
    #[error("it ended before its `Content-Length`")]
    CutShort,
    #[error("its `Content-Length` is not the length of its body")]
    Misleads,
}

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
            let response = Response::from_parts(parts, ResponseBody::handlers(body));
            return (response, None);
        }
        let read = match self.length(&parts, &body) {
            Ok(length) => read(body, length, self.response_limit).await,
            Err(Unrecorded::CutShort) => {
                let frames = frames(body).chain(stream::iter([Err(Unrecorded::CutShort.into())]));
                let body = local(StreamBody::new(frames));
                Err((Unrecorded::CutShort, ResponseBody::local(body)))
            }
            Err(unrecorded) => Err((unrecorded, ResponseBody::handlers(body))),
        };
        match read {
            Ok(body) => {
                let cookies = parts.extensions.get() == Some(&Recording::WithCookies);
                let recorded = Recorded::new(fingerprint, &parts, body.clone(), cookies);
                let retention = self.retention.min(FOR_EVER);
                let record = Record::new(recorded.encode(), retention);
                let response = Response::from_parts(parts, ResponseBody::local(whole(body)));
                (response, Some(record))
            }
            Err((unrecorded, body)) => {
                self.warn(&parts, unrecorded);
                if unrecorded == Unrecorded::Misleads {
                    // A wrong length would split the response in two.
                    parts.headers.remove(CONTENT_LENGTH);
                }
                (Response::from_parts(parts, body), None)
            }
        }
    }

    /// The length of a body that may be recorded, from the head and the body's size hint; `None`: only its end tells it.
    fn length<R: Body>(
        &self,
        parts: &response::Parts,
        body: &R,
    ) -> Result<Option<u64>, Unrecorded> {
        let exact = body.size_hint().exact();
        let without_body = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED];
        if exact == Some(0) && without_body.contains(&parts.status) {
            // A `Content-Length` beside such a status is the length of another response (RFC 9110, 8.6).
            return Ok(exact);
        }
        let length = match (declared(&parts.headers)?, exact) {
            (Some(declared), Some(exact)) if exact < declared => return Err(Unrecorded::CutShort),
            (Some(declared), Some(exact)) if exact > declared => return Err(Unrecorded::Misleads),
            (declared, exact) => declared.or(exact),
        };
        match length > Some(self.response_limit as u64) {
            true => Err(Unrecorded::TooLong),
            false => Ok(length),
        }
    }

    /// Whether a response is the handler's, and is to be recorded. A connection that switches protocols cannot be replayed.
    fn is_final(&self, response: &response::Parts) -> bool {
        let recording = response.extensions.get::<Recording>();
        response.extensions.get::<Rejection>().is_none()
            && !response.status.is_informational()
            && recording.map_or_else(
                || (self.record_if)(response),
                |recording| *recording != Recording::Never,
            )
    }

    /// Logs a warning once a minute, and a debug line each time, that a response is not recorded.
    fn warn(&self, parts: &response::Parts, reason: Unrecorded) {
        let (status, limit) = (parts.status.as_u16(), self.response_limit);
        match self.warned.due() {
            Some(left_out) => tracing::warn!(
                %reason,
                status,
                limit,
                left_out,
                "a response is not recorded: a repeat of its request runs again"
            ),
            None => tracing::debug!(%reason, status, limit, "a response is not recorded"),
        }
    }
}

/// The one number of `Content-Length`. Digits only: `parse` also accepts a sign.
fn declared(headers: &HeaderMap) -> Result<Option<u64>, Unrecorded> {
    let mut lines = headers.get_all(CONTENT_LENGTH).iter();
    let Some(line) = lines.next() else {
        return Ok(None);
    };
    let text = line.to_str().unwrap_or_default();
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit()) && lines.next().is_none();
    let length = text.parse().ok().filter(|_| is_number);
    length.map(Some).ok_or(Unrecorded::Misleads)
}

/// The frames of a body, which is not polled after its end.
fn frames<R>(body: R) -> impl Stream<Item = Result<Frame<Bytes>, BoxError>> + Send + 'static
where
    R: Body<Error: Into<BoxError>> + Send + 'static,
{
    let body =
        body.map_frame(|frame| frame.map_data(|mut data| data.copy_to_bytes(data.remaining())));
    StreamExt::fuse(BodyStream::new(body.map_err(Into::into)))
}

/// Reads a body to its end: `length` bytes, or at most `limit` bytes that are there without a wait to speak of.
///
/// # Errors
///
/// The body from its beginning, if it has another length, failed, or has trailers.
async fn read<R>(
    body: R,
    length: Option<u64>,
    limit: usize,
) -> Result<Bytes, (Unrecorded, ResponseBody<R>)>
where
    R: Body<Error: Into<BoxError>> + Send + 'static,
{
    let longest = length.map_or(limit, |length| length as usize);
    let patience = length.map_or(LAST_MOMENT, |_| FOR_EVER);
    let until = Instant::now() + patience;
    let mut frames = Box::pin(frames(body));
    let mut read = BytesMut::new();
    let (unrecorded, next) = loop {
        let Ok(next) = timeout_at(until, frames.next()).await else {
            break (Unrecorded::Stream, None);
        };
        match next {
            Some(Ok(frame)) => match frame.data_ref() {
                None => break (Unrecorded::Trailers, Some(Ok(frame))),
                Some(data) if data.len() <= longest - read.len() => read.extend_from_slice(data),
                Some(_) if length.is_some() => break (Unrecorded::Misleads, Some(Ok(frame))),
                Some(_) => break (Unrecorded::TooLong, Some(Ok(frame))),
            },
            Some(Err(error)) => break (Unrecorded::BrokeOff, Some(Err(error))),
            None if length.is_none_or(|length| length == read.len() as u64) => {
                return Ok(read.freeze());
            }
            // The client must not take a part for the whole.
            None => break (Unrecorded::CutShort, Some(Err(Unrecorded::CutShort.into()))),
        }
    };
    let read = (!read.is_empty()).then(|| Ok(Frame::data(read.freeze())));
    let frames = stream::iter(read).chain(stream::iter(next)).chain(frames);
    Err((
        unrecorded,
        ResponseBody::local(local(StreamBody::new(frames))),
    ))
}
