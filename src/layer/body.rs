//! Response bodies.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::confirm::{Unconfirmed, confirm};
use super::policy::{Confirm, OnLost};
use crate::guard::LockGuard;

/// The error type of [`ResponseBody`].
pub type BoxError = Box<dyn Error + Send + Sync>;

pin_project! {
    /// The body of a response that came through a [`DistributedLock`](super::DistributedLock).
    ///
    /// It is the handler's body, as it is or with the lock inside ([`ReleaseOn::BodyEnd`](super::ReleaseOn::BodyEnd)), or
    /// that of the layer's own response.
    pub struct ResponseBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProjected]
    enum Kind<B> {
        Handlers { #[pin] body: B },
        Guarded { #[pin] body: B, hold: Hold },
        Local { body: LocalBody },
    }
}

impl<B> ResponseBody<B> {
    /// The handler's body, and no lock any more.
    pub(super) fn handlers(body: B) -> Self {
        Self {
            kind: Kind::Handlers { body },
        }
    }

    /// The layer's own.
    pub(super) fn local(body: LocalBody) -> Self {
        Self {
            kind: Kind::Local { body },
        }
    }

    /// The handler's body under the lock. `length` is what the head of the response promises: a reader that has got so
    /// much does not ask for more.
    pub(super) fn guarded(
        body: B,
        guard: LockGuard,
        length: Option<u64>,
        how: Confirm,
        on_lost: OnLost,
    ) -> Self {
        let hold = Hold {
            lost: (on_lost == OnLost::Abort).then(|| {
                let handle = guard.handle();
                Box::pin(async move { handle.lost().await }) as Pin<Box<_>>
            }),
            phase: Phase::Open(guard),
            how,
            remaining: length,
            withheld: None,
        };
        Self {
            kind: Kind::Guarded { body, hold },
        }
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.project().kind.project() {
            KindProjected::Handlers { body } => poll_bytes(body, cx),
            KindProjected::Guarded { body, hold } => hold.poll_frame(body, cx),
            KindProjected::Local { body } => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Handlers { body } => body.is_end_stream(),
            Kind::Guarded { body, hold } => match hold.phase {
                Phase::Open(_) | Phase::Releasing(_) => false,
                Phase::Released => body.is_end_stream(),
                Phase::Failed => true,
            },
            Kind::Local { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Handlers { body } => body.size_hint(),
            Kind::Guarded { body, hold } => hold.size_hint(body.size_hint()),
            Kind::Local { body } => body.size_hint(),
        }
    }
}

impl<B> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").finish_non_exhaustive()
    }
}

/// The lock inside a body.
struct Hold {
    phase: Phase,
    how: Confirm,
    /// Resolves when the lock is lost, if that is to end the body.
    lost: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// How much of the promised length is still to come.
    remaining: Option<u64>,
    /// The last frame, until the release is confirmed.
    withheld: Option<Frame<Bytes>>,
}

enum Phase {
    Open(LockGuard),
    Releasing(Pin<Box<dyn Future<Output = Result<(), Unconfirmed>> + Send>>),
    Released,
    Failed,
}

impl Hold {
    fn poll_frame<B>(
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
                Phase::Open(_) => {
                    if self.is_lost(cx) {
                        return self.fail(Box::new(LockLost));
                    }
                    match ready!(poll_bytes(body.as_mut(), cx)) {
                        Some(Ok(frame)) if !self.is_last(&frame, body.is_end_stream()) => {
                            return Poll::Ready(Some(Ok(frame)));
                        }
                        Some(Ok(frame)) => self.release(Some(frame)),
                        None => self.release(None),
                        Some(Err(error)) => return self.fail(error),
                    }
                }
                Phase::Releasing(releasing) => match ready!(releasing.as_mut().poll(cx)) {
                    Ok(()) => {
                        self.phase = Phase::Released;
                        return Poll::Ready(self.withheld.take().map(Ok));
                    }
                    Err(Unconfirmed) => return self.fail(Box::new(LockLost)),
                },
                Phase::Released => return poll_bytes(body, cx),
                Phase::Failed => return Poll::Ready(None),
            }
        }
    }

    fn is_lost(&mut self, cx: &mut Context<'_>) -> bool {
        self.lost
            .as_mut()
            .is_some_and(|lost| lost.as_mut().poll(cx).is_ready())
    }

    /// Whether a reader may take this frame for the end and never ask again.
    fn is_last(&mut self, frame: &Frame<Bytes>, at_end: bool) -> bool {
        if let (Some(remaining), Some(data)) = (&mut self.remaining, frame.data_ref()) {
            *remaining = remaining.saturating_sub(data.len() as u64);
        }
        at_end || frame.is_trailers() || self.remaining == Some(0)
    }

    fn release(&mut self, withheld: Option<Frame<Bytes>>) {
        self.withheld = withheld;
        self.lost = None;
        if let Phase::Open(guard) = std::mem::replace(&mut self.phase, Phase::Released) {
            self.phase = Phase::Releasing(Box::pin(confirm(self.how, guard)));
        }
    }

    /// Ends the body; what is left of the lock is released in the background.
    fn fail(&mut self, error: BoxError) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.phase = Phase::Failed;
        self.withheld = None;
        self.lost = None;
        Poll::Ready(Some(Err(error)))
    }

    fn size_hint(&self, rest: SizeHint) -> SizeHint {
        if matches!(self.phase, Phase::Failed) {
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

/// The lock was lost while the response was being sent: what was sent is not to be relied on.
#[derive(Debug)]
struct LockLost;

impl fmt::Display for LockLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the lock was lost before the end of the response")
    }
}

impl Error for LockLost {}

/// A body of the layer's own making, whatever it is made of.
pub(super) struct LocalBody(Pin<Box<dyn Body<Data = Bytes, Error = BoxError> + Send>>);

impl LocalBody {
    pub(super) fn new<B>(body: B) -> Self
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        Self(Box::pin(Boxed { body }))
    }
}

impl Body for LocalBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.as_mut().poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

impl fmt::Debug for LocalBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalBody").finish_non_exhaustive()
    }
}

pin_project! {
    /// Any body with the common error.
    struct Boxed<B> {
        #[pin]
        body: B,
    }
}

impl<B> Body for Boxed<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        poll_bytes(self.project().body, cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Polls a body whose data may be anything; `Bytes` stay as they are, without a copy.
fn poll_bytes<B>(
    body: Pin<&mut B>,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, BoxError>>>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    body.poll_frame(cx).map(|frame| {
        frame.map(|frame| match frame {
            Ok(frame) => Ok(frame.map_data(|mut data| data.copy_to_bytes(data.remaining()))),
            Err(error) => Err(error.into()),
        })
    })
}
