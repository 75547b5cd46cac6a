//! The answer of a store without its type.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::FutureExt;

use super::answer_pool::Pooled;
use crate::error::StoreError;

/// The answer to a question: there already, or a future.
pub(crate) struct Answer<T>(Arrival<T>);

enum Arrival<T> {
    Now(Result<T, StoreError>),
    Later(Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>),
    Pooled(Pin<Box<dyn Pooled<T>>>),
    Taken,
}

impl<T> Answer<T> {
    /// Asks a question that is answered at its first poll.
    ///
    /// # Panics
    ///
    /// If it is not.
    pub(super) fn at_once(question: impl Future<Output = Result<T, StoreError>>) -> Self {
        let answer = question.now_or_never();
        Self(Arrival::Now(
            answer.expect("the store answers at the first poll"),
        ))
    }

    pub(super) fn later(
        question: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Self {
        Self(Arrival::Later(Box::pin(question)))
    }

    /// The answer of a future that belongs to a pool.
    pub(super) fn pooled(answer: Pin<Box<dyn Pooled<T>>>) -> Self {
        Self(Arrival::Pooled(answer))
    }

    /// The answer if it is there already, otherwise the future.
    pub(crate) fn now(self) -> Result<Result<T, StoreError>, Self> {
        match self.0 {
            Arrival::Now(answer) => Ok(answer),
            state => Err(Self(state)),
        }
    }
}

// The future in it is boxed.
impl<T> Unpin for Answer<T> {}

impl<T> Future for Answer<T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Arrival::Later(answer) => return answer.as_mut().poll(cx),
            Arrival::Pooled(asked) => {
                let answer = ready!(asked.as_mut().poll_answer(cx));
                if let Arrival::Pooled(asked) = mem::replace(&mut self.0, Arrival::Taken) {
                    asked.recycle();
                }
                return Poll::Ready(answer);
            }
            Arrival::Now(_) | Arrival::Taken => {}
        }
        match mem::replace(&mut self.0, Arrival::Taken) {
            Arrival::Now(answer) => Poll::Ready(answer),
            _ => panic!("the answer was taken"),
        }
    }
}
