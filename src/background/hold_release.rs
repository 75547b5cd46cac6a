//! The release of one hold, as a future without a box.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;

#[cfg(doc)]
use super::Background;
use super::release::{Tries, answered, release};
use super::{BACKOFF, EndOfHold};
use crate::cleanup;
use crate::error::{LockError, StoreError};
use crate::store::{Answer, Record, Release, Released};
use crate::watchdog::Phase;

/// The release of one hold. It asks the store at its first poll.
///
/// Nearly all releases are answered once, and their callers wait for that. What else may happen is boxed: a release in the
/// background takes a slot before it asks, and one without an answer is repeated.
///
/// It can be moved while the question is under way, so that it continues in the background.
pub(crate) struct HoldRelease<E: EndOfHold> {
    stage: Stage<E>,
    /// The hold was not lost before.
    held: bool,
}

enum Stage<E: EndOfHold> {
    Unasked(Unasked<E>),
    Asked(Asked<E>),
    Boxed(BoxFuture<'static, Result<(), LockError>>),
    Ended,
}

/// Before the question.
struct Unasked<E> {
    end: E,
    /// Boxed: few releases have one.
    record: Option<Box<Record>>,
}

/// The first question is under way. The fields are dropped in this order.
struct Asked<E: EndOfHold> {
    answer: Answer<Released>,
    end: Finishing<E>,
    record: Option<Box<Record>>,
}

/// If it is dropped before the release has ended, with its runtime or by a panic, it ends the hold with an unknown result, so that
/// no task waits for its end.
struct Finishing<E: EndOfHold>(E);

impl<E: EndOfHold> Drop for Finishing<E> {
    fn drop(&mut self) {
        self.0.live().finish(Phase::Lost);
    }
}

impl<E: EndOfHold> HoldRelease<E> {
    /// Call it after [`Background::begin_release`], which says whether the hold was `held`.
    pub(crate) fn new(end: E, record: Option<Record>, held: bool) -> Self {
        let record = record.map(Box::new);
        Self {
            stage: Stage::Unasked(Unasked { end, record }),
            held,
        }
    }

    /// The same, for a release that does not ask the store about the hold alone.
    pub(super) fn boxed(
        release: impl Future<Output = Result<(), LockError>> + Send + 'static,
    ) -> Self {
        Self {
            stage: Stage::Boxed(Box::pin(release)),
            held: true,
        }
    }
}

impl<E: EndOfHold> Future for HoldRelease<E> {
    type Output = Result<(), LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let released = loop {
            self.stage = match mem::replace(&mut self.stage, Stage::Ended) {
                Stage::Unasked(unasked) => match cleanup::is_in_background() {
                    true => Stage::Boxed(Box::pin(unasked.in_turn())),
                    false => Stage::Asked(unasked.ask()),
                },
                Stage::Asked(mut asked) => match Pin::new(&mut asked.answer).poll(cx) {
                    Poll::Ready(released) => match asked.answered(released) {
                        Answered::Decided(result) => break result,
                        Answered::Undecided(rest) => Stage::Boxed(rest),
                    },
                    Poll::Pending => {
                        self.stage = Stage::Asked(asked);
                        return Poll::Pending;
                    }
                },
                Stage::Boxed(mut release) => match release.as_mut().poll(cx) {
                    Poll::Ready(result) => break result,
                    Poll::Pending => {
                        self.stage = Stage::Boxed(release);
                        return Poll::Pending;
                    }
                },
                Stage::Ended => panic!("polled after it was ready"),
            };
        };
        Poll::Ready(match self.held {
            true => released,
            false => Err(LockError::Lost),
        })
    }
}

impl<E: EndOfHold> Unasked<E> {
    fn ask(self) -> Asked<E> {
        let Self { end, record } = self;
        let hold = end.live().hold.clone();
        let release = Release::new(hold).record(record.as_deref().cloned());
        // From here on, the hold ends with the question.
        let end = Finishing(end);
        Asked {
            answer: end.0.background().store().release_alone(release),
            end,
            record,
        }
    }

    /// In the background, where releases take turns.
    async fn in_turn(self) -> Result<(), LockError> {
        let background = self.end.background().clone();
        let slot = background.slot(background.partition(self.end.live())).await;
        let mut asked = self.ask();
        let released = (&mut asked.answer).await;
        // A release without an answer is repeated after growing pauses, and does not block others any more.
        drop(slot);
        match asked.answered(released) {
            Answered::Decided(result) => result,
            Answered::Undecided(rest) => rest.await,
        }
    }
}

enum Answered {
    Decided(Result<(), LockError>),
    /// The release is repeated.
    Undecided(BoxFuture<'static, Result<(), LockError>>),
}

impl<E: EndOfHold> Asked<E> {
    fn answered(mut self, released: Result<Released, StoreError>) -> Answered {
        self.end.0.asked(answered(&released));
        let mut tries = Tries::of(self.end.0.live());
        match tries.decided(released) {
            Some(result) => Answered::Decided(self.ended(result)),
            None => Answered::Undecided(Box::pin(self.repeat(tries))),
        }
    }

    async fn repeat(self, tries: Tries) -> Result<(), LockError> {
        let mut backoff = BACKOFF;
        backoff.pause().await;
        let (store, live) = (self.end.0.background().store(), self.end.0.live());
        let record = self.record.as_deref();
        let result = release(store, live, record, tries, backoff).await;
        self.ended(result)
    }

    fn ended(self, result: Result<(), LockError>) -> Result<(), LockError> {
        let end = &self.end.0;
        end.background().released(end.live(), &result);
        result
    }
}
