//! Reads request bodies before a lock is requested.

use std::error::Error;
use std::future::pending;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use http::request::Parts;
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::body_budget::{BodyBudget, FREE, Share, TOTAL};
use super::rejection::RejectionKind;
use crate::error::BoxError;

/// How long a body may take to arrive.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// How much of a body over the limit is still read (bytes), so that a client that is still writing gets the answer.
const DRAINED: usize = 256 * 1024;

/// The time limit for that.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// A body that was read, with its share of the budget until its handler is called.
pub(crate) type ReadBody = (Bytes, Share);

/// Reads request bodies within a limit for each, a time limit, and one budget for all of a layer.
#[derive(Debug, Clone, Default)]
pub struct BodyReader {
    /// How long a body may be (bytes). `None`: axum's `DefaultBodyLimit`, and 2 MiB without one.
    pub(crate) limit: Option<usize>,
    budget: BodyBudget,
}

impl BodyReader {
    /// Reads a body to its end. Trailers are dropped.
    ///
    /// # Errors
    ///
    /// [`RejectionKind::BodyTooLarge`], [`RejectionKind::BodyTimeout`], [`RejectionKind::BodyBudget`], or
    /// [`RejectionKind::BodyUnreadable`].
    pub(super) async fn read<B>(
        &self,
        parts: &mut Parts,
        body: B,
    ) -> Result<ReadBody, RejectionKind>
    where
        B: Body<Error: Into<BoxError>>,
    {
        let declared = body.size_hint();
        let longest = declared.upper().unwrap_or(u64::MAX);
        let limit = match self.limit {
            Some(limit) => limit,
            None => default_limit(parts),
        };
        let limit = limit.min(TOTAL);
        if declared.lower() > limit as u64 {
            // Not drained: the first read would have the server ask for a body that the client has not begun to send.
            return Err(RejectionKind::BodyTooLarge);
        }
        let longest = longest.min(limit as u64) as usize;
        let mut body = pin!(body);
        let (mut share, gives_way) = match longest <= FREE {
            true => (Share::default(), None),
            false => {
                let (share, gives_way) = self.budget.begin();
                (share, Some(gives_way))
            }
        };
        let reading = collect(body.as_mut(), limit, longest, &mut share);
        let read = tokio::select! {
            biased; // without chance, a simulation replays
            () = told(gives_way) => Err(RejectionKind::BodyBudget),
            read = timeout(TIME_LIMIT, reading) => read.unwrap_or(Err(RejectionKind::BodyTimeout)),
        };
        if matches!(read, Err(RejectionKind::BodyTooLarge)) {
            drop(share);
            let _ = timeout(DRAIN_TIME, drain(body)).await;
            return Err(RejectionKind::BodyTooLarge);
        }
        let bytes = read?;
        match share.finish() {
            true => Ok((bytes, share)),
            false => Err(RejectionKind::BodyBudget),
        }
    }
}

async fn told(gives_way: Option<Arc<Notify>>) {
    match gives_way {
        Some(gives_way) => gives_way.notified().await,
        None => pending().await,
    }
}

/// The limit that axum has for the request, by a body that may have any length.
#[cfg(feature = "axum")]
fn default_limit(parts: &mut Parts) -> usize {
    use axum::RequestExt;
    use axum::body::Body;
    use futures_util::stream;

    let endless = stream::pending::<Result<Bytes, std::convert::Infallible>>();
    let mut request = http::Request::new(Body::from_stream(endless));
    *request.extensions_mut() = std::mem::take(&mut parts.extensions);
    let (limited, body) = request.with_limited_body().into_parts();
    parts.extensions = limited.extensions;
    let longest = body.size_hint().upper();
    longest.map_or(TOTAL, |longest| longest.try_into().unwrap_or(TOTAL))
}

#[cfg(not(feature = "axum"))]
fn default_limit(_: &mut Parts) -> usize {
    2 * 1024 * 1024
}

/// Reads at most `limit` bytes of a body that has at most `longest`.
async fn collect<B>(
    mut body: Pin<&mut B>,
    limit: usize,
    longest: usize,
    share: &mut Share,
) -> Result<Bytes, RejectionKind>
where
    B: Body<Error: Into<BoxError>>,
{
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| failure(&*error.into()))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let arrived = data.remaining();
        let length = bytes.len() + arrived;
        if length > limit {
            return Err(RejectionKind::BodyTooLarge);
        }
        // The capacity doubles, so that a sender occupies at most twice what it has sent.
        let capacity = match length <= bytes.capacity() {
            true => bytes.capacity(),
            false => (bytes.capacity() * 2).min(longest).max(length),
        };
        if !share.grow(capacity, arrived) {
            return Err(RejectionKind::BodyBudget);
        }
        bytes.reserve_exact(capacity - bytes.len());
        // Copied, because a frame is often a small part of a large read buffer of the server, which it would keep alive.
        bytes.put(data);
    }
    Ok(bytes.into())
}

/// Why a body could not be read to its end. A limit outside of the layer may have cut it off.
fn failure(error: &(dyn Error + 'static)) -> RejectionKind {
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    match causes.any(|cause| cause.is::<LengthLimitError>()) {
        true => RejectionKind::BodyTooLarge,
        false => RejectionKind::BodyUnreadable,
    }
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
