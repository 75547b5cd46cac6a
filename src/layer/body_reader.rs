//! Reads request bodies before a lock is requested.

#[cfg(feature = "axum")]
use std::any::type_name;
use std::error::Error;
use std::pin::{Pin, pin};
use std::sync::Arc;
#[cfg(feature = "axum")]
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::rejection::RejectionKind;
use crate::error::BoxError;

/// How much of a body over the limit is still read (bytes), so that a client that is still writing gets the answer.
const DRAINED: usize = 256 * 1024;

/// The time limit for that.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// Reads request bodies within a limit for each, a time limit, and one budget for all of a layer.
#[derive(Debug, Clone)]
pub struct BodyReader {
    pub(crate) limit: usize,
    pub(crate) time_limit: Duration,
    /// How many bytes all bodies may occupy at a time.
    budget: usize,
    /// The part of the budget that none occupies. Clones share it.
    free: Arc<Semaphore>,
    /// Whether a body that is not read was logged.
    #[cfg(feature = "axum")]
    warned: Arc<AtomicBool>,
}

impl BodyReader {
    /// Reads at most `limit` bytes of a body, within a minute, and holds at most 64 MiB of all bodies together.
    pub(crate) fn new(limit: usize) -> Self {
        let budget = 64 * 1024 * 1024;
        Self {
            limit,
            time_limit: Duration::from_secs(60),
            budget,
            free: Arc::new(Semaphore::new(budget)),
            #[cfg(feature = "axum")]
            warned: Arc::default(),
        }
    }

    /// Logs once that bodies of the type `B` are not read.
    #[cfg(feature = "axum")]
    pub(super) fn warn_of_unread<B>(&self) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                body = type_name::<B>(),
                "a slow sender holds its lock, because a body of this type is not read before: call `stream_body` if that is \
                 meant, or put layers that change the request's body into a `.layer` call of their own"
            );
        }
    }

    pub(crate) fn budget(&mut self, bytes: usize) {
        self.budget = bytes.min(Semaphore::MAX_PERMITS);
        self.free = Arc::new(Semaphore::new(self.budget));
    }

    /// Checks the settings; the error says why no body could be read.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        match self.limit == 0 || self.time_limit.is_zero() || self.limit > self.budget {
            false => Ok(()),
            true => Err(
                "request bodies cannot be read: the limit and the time limit must be more than 0, \
                 and the budget at least the limit",
            ),
        }
    }

    /// Reads a body to its end. Trailers are dropped. The bytes occupy their share of the budget as long as any clone of
    /// them exists.
    ///
    /// # Errors
    ///
    /// [`RejectionKind::BodyTooLarge`], [`RejectionKind::BodyTimeout`], [`RejectionKind::BodyBudget`], or
    /// [`RejectionKind::BodyUnreadable`].
    pub(crate) async fn read<B>(&self, body: B) -> Result<Bytes, RejectionKind>
    where
        B: Body<Error: Into<BoxError>>,
    {
        if body.is_end_stream() {
            return Ok(Bytes::new());
        }
        let declared = body.size_hint();
        if declared.lower() > self.limit as u64 {
            // Not drained: the first read would have the server ask for a body that the client has not begun to send.
            return Err(RejectionKind::BodyTooLarge);
        }
        let longest = declared.upper().unwrap_or(u64::MAX).min(self.limit as u64);
        let mut body = pin!(body);
        let collected = timeout(
            self.time_limit,
            self.collect(body.as_mut(), longest as usize),
        );
        let read = collected.await.unwrap_or(Err(RejectionKind::BodyTimeout));
        if matches!(read, Err(RejectionKind::BodyTooLarge)) {
            let _ = timeout(DRAIN_TIME, drain(body)).await;
        }
        read
    }

    async fn collect<B>(
        &self,
        mut body: Pin<&mut B>,
        longest: usize,
    ) -> Result<Bytes, RejectionKind>
    where
        B: Body<Error: Into<BoxError>>,
    {
        let (bytes, share) = (Vec::new(), self.take(0)?);
        let mut buffer = Buffer { bytes, share };
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| failure(&*error.into()))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            let length = buffer.bytes.len() + data.remaining();
            if length > self.limit {
                return Err(RejectionKind::BodyTooLarge);
            }
            self.make_room(&mut buffer, length, longest)?;
            // Copied, because a frame is often a small part of a large read buffer of the server, which it would keep
            // alive.
            buffer.bytes.put(data);
        }
        Ok(Bytes::from_owner(buffer))
    }

    fn take(&self, bytes: usize) -> Result<OwnedSemaphorePermit, RejectionKind> {
        let bytes = u32::try_from(bytes).map_err(|_| RejectionKind::BodyBudget)?;
        let taken = self.free.clone().try_acquire_many_owned(bytes);
        taken.map_err(|_| RejectionKind::BodyBudget)
    }

    /// Makes room for `length` bytes in all, of a body with at most `longest` bytes. The capacity doubles, so that a
    /// sender occupies at most twice what it has sent.
    fn make_room(
        &self,
        buffer: &mut Buffer,
        length: usize,
        longest: usize,
    ) -> Result<(), RejectionKind> {
        let capacity = buffer.bytes.capacity();
        if length <= capacity {
            return Ok(());
        }
        let wanted = capacity.saturating_mul(2).min(longest).max(length);
        buffer.share.merge(self.take(wanted - capacity)?);
        buffer.bytes.reserve_exact(wanted - buffer.bytes.len());
        Ok(())
    }
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

/// A body, read in part or whole. `share` covers the capacity of `bytes`.
struct Buffer {
    bytes: Vec<u8>,
    share: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
