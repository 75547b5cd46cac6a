//! Reads request bodies before a lock is requested.

use std::error::Error;
use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::request::Parts;
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::timeout;

use super::rejection::{Rejection, RejectionKind};
use crate::error::BoxError;

/// The longest body that is read (bytes), even if axum has no limit.
const LONGEST: usize = 64 * 1024 * 1024;

/// How long a body may take to arrive.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// How much of a body over the limit is still read (bytes), so that a client that is still writing gets the answer.
const DRAINED: usize = 256 * 1024;

/// The time limit for that.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// Reads a body to its end, within a limit of time and of length, which is axum's `DefaultBodyLimit` up to [`LONGEST`]. Trailers are
/// dropped.
///
/// # Errors
///
/// [`RejectionKind::BodyTooLarge`], with the limit, [`RejectionKind::BodyTimeout`], or [`RejectionKind::BodyUnreadable`].
pub(super) async fn read<B>(parts: &mut Parts, body: B) -> Result<Bytes, Rejection>
where
    B: Body<Error: Into<BoxError>>,
{
    let limit = limit(parts).min(LONGEST);
    let too_large = || {
        let detail = format!("a body that is read before its lock may have {limit} bytes");
        Rejection::new(RejectionKind::BodyTooLarge).with_detail(Some(detail.into()))
    };
    if body.size_hint().lower() > limit as u64 {
        // Not drained: the first read would have the server ask for a body that the client has not begun to send.
        return Err(too_large());
    }
    let mut body = pin!(body);
    let reading = Limited::new(body.as_mut(), limit).collect();
    match timeout(TIME_LIMIT, reading).await {
        Ok(Ok(read)) => Ok(read.to_bytes()),
        Ok(Err(error)) if is_too_large(&*error) => {
            let _ = timeout(DRAIN_TIME, drain(body)).await;
            Err(too_large())
        }
        Ok(Err(_)) => Err(Rejection::new(RejectionKind::BodyUnreadable)),
        Err(_) => Err(Rejection::new(RejectionKind::BodyTimeout)),
    }
}

/// The limit that axum has for the request, by a body that may have any length.
#[cfg(feature = "axum")]
fn limit(parts: &mut Parts) -> usize {
    use axum::RequestExt;
    use axum::body::Body;
    use futures_util::stream;

    let endless = stream::pending::<Result<Bytes, std::convert::Infallible>>();
    let mut request = http::Request::new(Body::from_stream(endless));
    *request.extensions_mut() = std::mem::take(&mut parts.extensions);
    let (limited, body) = request.with_limited_body().into_parts();
    parts.extensions = limited.extensions;
    let longest = body.size_hint().upper();
    longest.map_or(LONGEST, |longest| longest.try_into().unwrap_or(LONGEST))
}

#[cfg(not(feature = "axum"))]
fn limit(_: &mut Parts) -> usize {
    2 * 1024 * 1024
}

/// Whether a body could not be read to its end because it is too long. A limit outside of the layer may have cut it off.
fn is_too_large(error: &(dyn Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    causes.any(|cause| cause.is::<LengthLimitError>())
}

/// Reads the body for a short time. If the connection is closed while the client writes, it is reset and the answer is
/// lost.
async fn drain<B: Body>(mut body: Pin<&mut B>) {
    let mut left = DRAINED;
    while let Some(Ok(frame)) = body.frame().await {
        let length = frame.data_ref().map_or(0, Buf::remaining);
        match left.checked_sub(length) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}
