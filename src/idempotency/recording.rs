//! Turns a response into its record.

use std::cmp::Ordering;

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use http::header::CONTENT_LENGTH;
use http::{Response, StatusCode, response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use tokio::time::{Instant, timeout_at};

use super::admission::RecordContext;
use super::record::encode;
use super::settings::IdempotencySettings;
use crate::error::BoxError;
use crate::layer::{Rejection, ResponseBody, local, whole};
use crate::limits::{FOR_EVER, LAST_MOMENT};
use crate::store::Record;

/// Says whether a response is recorded, in place of [`record_if`](super::IdempotencyLayer::record_if). A handler puts it into the
/// extensions of its response.
///
/// The answers of this crate's layers and upgrades (101) are not recorded even so, and neither is a body that is too long or has
/// trailers.
///
/// The layer sends a response when its body has ended. If neither the body nor a `Content-Length` tells its length, it waits 100 ms for
/// the end, and then sends the response unrecorded, as a stream. A handler that says [`Always`](Self::Always) or
/// [`WithCookies`](Self::WithCookies) makes the layer wait for the end, however long that takes, so do not say it of an endless
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

const TOO_LONG: &str = "it is too long";
const CUT_SHORT: &str = "it ended before its `Content-Length`";

/// Why a response is sent unrecorded, and without its `Content-Length`.
const MISLEADS: &str = "its `Content-Length` is not the length of its body";

impl IdempotencySettings {
    /// Reads a final response, and makes its record. `None`: the response is sent unrecorded.
    pub(super) async fn record_response<R>(
        &self,
        response: Response<R>,
        context: &RecordContext,
    ) -> (Response<ResponseBody<R>>, Option<Record>)
    where
        R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let (mut parts, body) = response.into_parts();
        if !self.is_final(&parts) {
            let response = Response::from_parts(parts, ResponseBody::handlers(body));
            return (response, None);
        }
        match read(&parts, body, self.response_limit).await {
            Ok(body) => {
                let cookies = parts.extensions.get() == Some(&Recording::WithCookies);
                let recorded = encode(context.fingerprint, &parts, &body, cookies);
                let record = Record::new(recorded, self.retention());
                let response = Response::from_parts(parts, ResponseBody::local(whole(body)));
                (response, Some(record.scope(context.scope.clone())))
            }
            Err((unrecorded, body)) => {
                self.warn(&parts, unrecorded);
                if unrecorded == MISLEADS {
                    // A wrong length would split the response in two.
                    parts.headers.remove(CONTENT_LENGTH);
                }
                (Response::from_parts(parts, body), None)
            }
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
    fn warn(&self, parts: &response::Parts, reason: &str) {
        let (status, limit) = (parts.status.as_u16(), self.response_limit);
        match self.warned.due() {
            Some(left_out) => tracing::warn!(
                reason,
                status,
                limit,
                left_out,
                "a response is not recorded: a repeat of its request runs again"
            ),
            None => tracing::debug!(reason, status, limit, "a response is not recorded"),
        }
    }
}

/// Reads the body of a response to its end, at most `limit` bytes. If the response neither says its length nor that it is to be
/// recorded, they must be there without a wait to speak of.
///
/// # Errors
///
/// The body from its beginning, if it is not to be recorded.
async fn read<R>(
    parts: &response::Parts,
    body: R,
    limit: usize,
) -> Result<Bytes, (&'static str, ResponseBody<R>)>
where
    R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let exact = body.size_hint().exact();
    let length = match length(parts, exact) {
        Ok(length) if exact.or(length) <= Some(limit as u64) => length,
        Ok(_) => return Err((TOO_LONG, ResponseBody::handlers(body))),
        Err(misleads) => return Err((misleads, ResponseBody::handlers(body))),
    };
    let ends = length.is_some() || parts.extensions.get::<Recording>().is_some();
    let until = Instant::now() + if ends { FOR_EVER } else { LAST_MOMENT };
    // Fused, because a body is not polled after its end.
    let mut frames = Box::pin(StreamExt::fuse(BodyStream::new(body.map_err(Into::into))));
    let mut read = BytesMut::new();
    let (unrecorded, next) = loop {
        let Ok(next) = timeout_at(until, frames.next()).await else {
            break ("it is a stream", None);
        };
        match next {
            Some(Ok(frame)) => match frame.data_ref() {
                None => break ("it has trailers", Some(Ok(frame))),
                Some(data) if data.len() <= limit - read.len() => read.extend_from_slice(data),
                Some(_) if length.is_some() => break (MISLEADS, Some(Ok(frame))),
                Some(_) => break (TOO_LONG, Some(Ok(frame))),
            },
            Some(Err(error)) => break ("it broke off", Some(Err(error))),
            None => match length.map(|length| length.cmp(&(read.len() as u64))) {
                None | Some(Ordering::Equal) => return Ok(read.freeze()),
                Some(Ordering::Less) => break (MISLEADS, None),
                // The client must not take a part for the whole.
                Some(Ordering::Greater) => {
                    break (CUT_SHORT, Some(Err(CUT_SHORT.into())));
                }
            },
        }
    };
    let read = (!read.is_empty()).then(|| Ok(Frame::data(read.freeze())));
    let frames = stream::iter(read).chain(stream::iter(next)).chain(frames);
    let body = ResponseBody::local(local(StreamBody::new(frames)));
    Err((unrecorded, body))
}

/// The length of a response, by its `Content-Length` or the `exact` length of its body; `None`: only the end of the body tells it.
fn length(parts: &response::Parts, exact: Option<u64>) -> Result<Option<u64>, &'static str> {
    let mut lines = parts.headers.get_all(CONTENT_LENGTH).iter();
    let without_body = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED];
    let line = match lines.next() {
        // Beside such a status it is the length of another response (RFC 9110, 8.6).
        Some(_) if exact == Some(0) && without_body.contains(&parts.status) => return Ok(exact),
        Some(line) => line.to_str().unwrap_or_default(),
        None => return Ok(exact),
    };
    // Digits only: `parse` also accepts a sign.
    let is_number = line.bytes().all(|byte| byte.is_ascii_digit()) && lines.next().is_none();
    let length = line.parse().ok().filter(|_| is_number);
    match length {
        Some(length) if exact.is_none_or(|exact| exact <= length) => Ok(Some(length)),
        _ => Err(MISLEADS),
    }
}
