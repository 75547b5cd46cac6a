//! The question that releases one hold, as a future without a box.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;

use super::EndOfHold;
use super::release::{Finishing, Tries, answered, release};
use crate::backoff::Backoff;
use crate::cleanup;
use crate::error::{LockError, StoreError};
use crate::store::{Answer, Record, Release, Released};

/// The release of one hold. It asks the store at its first poll.
///
/// Nearly all releases are answered once, and their callers wait for that. What else may happen is boxed: a release in the
/// background takes a place before it asks, and one without an answer is repeated.
///
/// It can be moved while the question is under way, so that it continues in the background.
pub(crate) enum ReleaseQuestion<E: EndOfHold> {
    Unasked(Unasked<E>),
    Asked(Asked<E>),
    Boxed(BoxFuture<'static, Result<(), LockError>>),
    Ended,
}

/// Before the question.
pub(crate) struct Unasked<E> {
    end: E,
    /// Boxed: few releases have one.
    record: Option<Box<Record>>,
}

/// The first question is under way. The fields are dropped in this order.
pub(crate) struct Asked<E: EndOfHold> {
    answer: Answer<Released, Release>,
    end: Finishing<E>,
    record: Option<Box<Record>>,
}

impl<E: EndOfHold> ReleaseQuestion<E> {
    /// Call it when the watchdog does not renew the hold any more.
    pub(crate) fn new(end: E, record: Option<Record>) -> Self {
        let record = record.map(Box::new);
        Self::Unasked(Unasked { end, record })
    }
}

impl<E: EndOfHold> Future for ReleaseQuestion<E> {
    type Output = Result<(), LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            *self = match mem::replace(&mut *self, Self::Ended) {
                Self::Unasked(unasked) => match cleanup::is_in_background() {
                    true => Self::Boxed(Box::pin(unasked.in_turn())),
                    false => Self::Asked(unasked.ask()),
                },
                Self::Asked(mut asked) => match Pin::new(&mut asked.answer).poll(cx) {
                    Poll::Ready(released) => match asked.answered(released) {
                        Answered::Decided(result) => return Poll::Ready(result),
                        Answered::Undecided(rest) => Self::Boxed(rest),
                    },
                    Poll::Pending => {
                        *self = Self::Asked(asked);
                        return Poll::Pending;
                    }
                },
                Self::Boxed(mut release) => {
                    let released = release.as_mut().poll(cx);
                    if released.is_pending() {
                        *self = Self::Boxed(release);
                    }
                    return released;
                }
                Self::Ended => panic!("polled after it was ready"),
            };
        }
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
            answer: end.0.background().handle.store.release_alone(release),
            end,
            record,
        }
    }

    /// In the background, where releases take turns.
    async fn in_turn(self) -> Result<(), LockError> {
        let background = self.end.background().clone();
        let handle = &background.handle;
        let partition = handle.store.partition_of(&self.end.live().hold.key);
        let place = handle.release_limit.enter(partition).await;
        let mut asked = self.ask();
        let released = (&mut asked.answer).await;
        // A release without an answer is repeated after growing pauses, and does not block others any more.
        drop(place);
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
        let mut tries = Tries::default();
        match tries.decided(self.end.0.live(), released) {
            Some(result) => Answered::Decided(self.ended(result)),
            None => Answered::Undecided(Box::pin(self.repeat(tries))),
        }
    }

    async fn repeat(self, tries: Tries) -> Result<(), LockError> {
        let mut backoff = Backoff::STORE;
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
