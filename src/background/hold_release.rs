//! The release of holds, as a future.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use smallvec::SmallVec;

use super::EndOfHold;
use super::release_question::ReleaseQuestion;
use crate::cleanup::NonCancellable;
use crate::error::LockError;
use crate::watchdog::LiveHold;

/// The release of a hold, or of several together. It is small, because each request of a layer has one.
///
/// # Cancel safety
///
/// A release in the store that has begun continues in the background.
#[must_use = "it says whether the lock was held"]
pub(crate) struct HoldRelease<E: EndOfHold> {
    work: ReleaseWork<E>,
    /// It fails as lost, whatever the store answers.
    is_lost: bool,
}

enum ReleaseWork<E: EndOfHold> {
    /// The result was there at once.
    Done(Option<Result<(), LockError>>),
    Asks(NonCancellable<ReleaseQuestion<E>>),
    Boxed {
        release: BoxFuture<'static, Result<(), LockError>>,
        /// The holds whose loss may become known before the end. One that others share may be lost after the store has
        /// answered that it was held until now.
        lives: SmallVec<[Arc<LiveHold>; 1]>,
    },
}

impl<E: EndOfHold> HoldRelease<E> {
    fn new(work: ReleaseWork<E>) -> Self {
        Self {
            work,
            is_lost: false,
        }
    }

    pub(crate) fn done(result: Result<(), LockError>) -> Self {
        Self::new(ReleaseWork::Done(Some(result)))
    }

    pub(super) fn asks(question: NonCancellable<ReleaseQuestion<E>>) -> Self {
        Self::new(ReleaseWork::Asks(question))
    }

    /// While the store is silent, it is lost as soon as one of `lives` is known to be lost.
    pub(crate) fn boxed(
        lives: impl IntoIterator<Item = Arc<LiveHold>>,
        release: impl Future<Output = Result<(), LockError>> + Send + 'static,
    ) -> Self {
        Self::new(ReleaseWork::Boxed {
            release: Box::pin(release),
            lives: lives.into_iter().collect(),
        })
    }

    /// The same, which also fails as lost if `is_lost`.
    pub(crate) fn lost_if(mut self, is_lost: bool) -> Self {
        self.is_lost |= is_lost;
        self
    }

    /// Whether it fails as lost, by what is known now, whatever the store still answers.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
            || match &self.work {
                ReleaseWork::Boxed { lives, .. } => lives.iter().any(|live| live.was_seen_lost()),
                ReleaseWork::Done(_) | ReleaseWork::Asks(_) => false,
            }
    }
}

impl<E: EndOfHold> Future for HoldRelease<E> {
    type Output = Result<(), LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let released = match &mut self.work {
            ReleaseWork::Done(result) => result.take().expect("polled after it was ready"),
            ReleaseWork::Asks(question) => ready!(Pin::new(question).poll(cx)),
            ReleaseWork::Boxed { release, .. } => ready!(release.as_mut().poll(cx)),
        };
        Poll::Ready(match released {
            _ if self.is_lost => Err(LockError::Lost),
            Err(LockError::Unavailable(_)) if self.is_lost() => Err(LockError::Lost),
            released => released,
        })
    }
}
