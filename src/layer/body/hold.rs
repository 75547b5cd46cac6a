use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::try_unfold;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;

use super::{LocalBody, local};
use crate::client::LayerLocks;
use crate::error::{BoxError, LockError};
use crate::guard::LockGuard;
use crate::layer::confirm::confirm;
use crate::layer::hold_times::TimedHold;
use crate::layer::settings::{Confirm, OnLost};
use crate::layer::unless_lost::unless_lost;

/// The handler's body with its lock inside. The last frame, or the end of a body that does not say which frame is its last, is
/// withheld until the release is confirmed. Without a confirmation the body ends with an error instead.
///
/// `length` is the declared length: a reader that has so many bytes does not poll again. A body that would go on ends there, so that
/// no part of it runs without the lock. `cut_off` makes and logs the error of a body whose lock is lost, or not confirmed.
pub(in crate::layer) fn guarded<B>(
    body: B,
    guard: LockGuard,
    timed: TimedHold,
    length: Option<u64>,
    how: Confirm,
    on_lost: OnLost,
    cut_off: impl Fn(LockError) -> BoxError + Clone + Send + 'static,
) -> LocalBody
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let body = body.map_err(Into::into);
    let rest = body.size_hint();
    // A body that says its length itself has only trailers behind it.
    let may_exceed = rest.exact() != length;
    let held = LayerLocks::new(guard.handle());
    let open = (Some(Box::pin(body)), Some((guard, timed)), length);
    let frames = try_unfold(open, move |(body, lock, mut length)| {
        let (held, cut_off) = (held.clone(), cut_off.clone());
        async move {
            let Some(mut body) = body else {
                return Ok(None);
            };
            let Some((guard, timed)) = lock else {
                let frame = body.frame().await.transpose()?;
                let is_end = body.is_end_stream();
                return Ok(frame.map(|frame| ((frame, is_end), (Some(body), None, length))));
            };
            // Dropped before the guard.
            let mut body = body;
            let watched = (on_lost == OnLost::Abort).then_some(&guard);
            if watched.is_some_and(LockGuard::is_lost) {
                return Err(cut_off(LockError::Lost));
            }
            let frame = unless_lost(watched, pin!(held.around(body.frame()))).await;
            let frame = frame.map_err(&cut_off)?.transpose()?;
            let is_last = frame.as_ref().is_none_or(|frame| {
                length = length.map(|length| length.saturating_sub(sent(frame)));
                frame.is_trailers() || length == Some(0) || body.is_end_stream()
            });
            if !is_last {
                let rest = (Some(body), Some((guard, timed)), length);
                return Ok(frame.map(|frame| ((frame, false), rest)));
            }
            // What can follow is an end that was not seen yet, or trailers. Nothing else of the handler outlives the lock.
            let may_follow = length == Some(0) && !may_exceed && !body.is_end_stream();
            let rest = may_follow.then_some(body);
            confirm(how, guard, None).await.map_err(cut_off)?;
            let is_end = rest.as_ref().is_none_or(|body| body.is_end_stream());
            Ok(frame.map(|frame| ((frame, is_end), (rest, None, length))))
        }
    });
    local(Guarded {
        frames: Box::pin(frames),
        least: rest.lower(),
        most: rest.upper(),
        is_end: false,
    })
}

/// How many bytes of the body are in a frame.
fn sent(frame: &Frame<Bytes>) -> u64 {
    frame.data_ref().map_or(0, |data| data.len() as u64)
}

/// Frames, each with whether it is the end, and the length of those that are to come.
struct Guarded<S> {
    frames: Pin<Box<S>>,
    least: u64,
    most: Option<u64>,
    is_end: bool,
}

impl<S: Stream<Item = Result<(Frame<Bytes>, bool), BoxError>>> Body for Guarded<S> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.is_end {
            return Poll::Ready(None);
        }
        let next = ready!(self.frames.as_mut().poll_next(cx));
        (self.least, self.most, self.is_end) = match &next {
            Some(Ok((frame, is_end))) => {
                let sent = sent(frame);
                let most = self.most.map(|most| most.saturating_sub(sent));
                (self.least.saturating_sub(sent), most, *is_end)
            }
            _ => (0, Some(0), true),
        };
        Poll::Ready(next.map(|next| next.map(|(frame, _)| frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.is_end
    }

    fn size_hint(&self) -> SizeHint {
        let mut rest = SizeHint::new();
        rest.set_lower(self.least);
        if let Some(most) = self.most {
            rest.set_upper(most);
        }
        rest
    }
}
