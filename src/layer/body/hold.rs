use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::poll_bytes;
use crate::client::Held;
use crate::error::{BoxError, LockError};
use crate::guard::LockGuard;
use crate::layer::confirm::{Confirmation, NotConfirmed, confirm};
use crate::layer::hold_times::TimedHold;
use crate::layer::settings::{Confirm, OnLost};

/// The lock inside a body.
pub(in crate::layer) struct BodyLock {
    phase: BodyPhase,
    how: Confirm,
    held: Held,
    /// Resolves when the lock is lost, if the loss ends the body.
    lost: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// The rest of the declared length.
    remaining: Option<u64>,
    /// The last frame, until the release is confirmed.
    withheld: Option<Frame<Bytes>>,
}

enum BodyPhase {
    Open(LockGuard, TimedHold),
    Releasing(
        Pin<Box<dyn Future<Output = Result<Confirmation, NotConfirmed>> + Send>>,
        #[expect(dead_code, reason = "its drop ends the time of the hold")] TimedHold,
    ),
    Released,
    Failed,
}

impl BodyLock {
    /// `length` is the declared length: a reader that has so many bytes does not poll again.
    pub(in crate::layer) fn new(
        guard: LockGuard,
        timed: TimedHold,
        length: Option<u64>,
        how: Confirm,
        on_lost: OnLost,
    ) -> Self {
        Self {
            lost: (on_lost == OnLost::Abort).then(|| {
                let handle = guard.handle();
                Box::pin(async move { handle.lost().await }) as Pin<Box<_>>
            }),
            held: Held::new(guard.handle()),
            phase: BodyPhase::Open(guard, timed),
            how,
            remaining: length,
            withheld: None,
        }
    }

    /// Polls the inner body, and ends it only when the release is confirmed.
    pub(super) fn poll_frame<B>(
        &mut self,
        mut body: Pin<&mut B>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>>
    where
        B: Body,
        B::Error: Into<BoxError>,
    {
        loop {
            match &mut self.phase {
                BodyPhase::Open(..) => {
                    if self.is_lost(cx) {
                        return self.fail(Box::new(LockError::Lost));
                    }
                    match ready!(self.held.call(|| poll_bytes(body.as_mut(), cx))) {
                        Some(Ok(frame)) if !self.is_last(&frame, body.is_end_stream()) => {
                            return Poll::Ready(Some(Ok(frame)));
                        }
                        Some(Ok(frame)) => self.release(Some(frame)),
                        None => self.release(None),
                        Some(Err(error)) => return self.fail(error),
                    }
                }
                BodyPhase::Releasing(releasing, _) => match ready!(releasing.as_mut().poll(cx)) {
                    Ok(_) => {
                        self.phase = BodyPhase::Released;
                        return Poll::Ready(self.withheld.take().map(Ok));
                    }
                    Err(NotConfirmed) => return self.fail(Box::new(LockError::Lost)),
                },
                BodyPhase::Released => return poll_bytes(body, cx),
                BodyPhase::Failed => return Poll::Ready(None),
            }
        }
    }

    fn is_lost(&mut self, cx: &mut Context<'_>) -> bool {
        self.lost
            .as_mut()
            .is_some_and(|lost| lost.as_mut().poll(cx).is_ready())
    }

    /// Whether a reader may treat this frame as the last one and not poll again.
    fn is_last(&mut self, frame: &Frame<Bytes>, at_end: bool) -> bool {
        if let (Some(remaining), Some(data)) = (&mut self.remaining, frame.data_ref()) {
            *remaining = remaining.saturating_sub(data.len() as u64);
        }
        at_end || frame.is_trailers() || self.remaining == Some(0)
    }

    fn release(&mut self, withheld: Option<Frame<Bytes>>) {
        self.withheld = withheld;
        self.lost = None;
        let phase = std::mem::replace(&mut self.phase, BodyPhase::Released);
        if let BodyPhase::Open(guard, timed) = phase {
            self.phase = BodyPhase::Releasing(Box::pin(confirm(self.how, guard, None)), timed);
        }
    }

    /// Ends the body with an error; the lock is released in the background.
    fn fail(&mut self, error: BoxError) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.phase = BodyPhase::Failed;
        self.withheld = None;
        self.lost = None;
        Poll::Ready(Some(Err(error)))
    }

    /// Whether both the inner body and the lock have ended.
    pub(super) fn has_ended<B: Body>(&self, body: &B) -> bool {
        match self.phase {
            BodyPhase::Open(..) | BodyPhase::Releasing(..) => false,
            BodyPhase::Released => body.is_end_stream(),
            BodyPhase::Failed => true,
        }
    }

    /// The size hint, where `rest` is that of the inner body.
    pub(super) fn size_hint(&self, rest: SizeHint) -> SizeHint {
        if matches!(self.phase, BodyPhase::Failed) {
            return SizeHint::with_exact(0);
        }
        let withheld = self.withheld.as_ref().and_then(Frame::data_ref);
        let withheld = withheld.map_or(0, |data| data.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(withheld));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(withheld));
        }
        hint
    }
}
