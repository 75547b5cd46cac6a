//! The answer of a store without its type.

use std::convert::Infallible;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::answer_pool::{AnswerPool, Asker};
use crate::error::StoreError;

/// The answer to a question: there already, or a future. `Q`: the question, if a pool has askers for its kind.
pub(crate) struct Answer<T, Q = Infallible>(Arrival<T, Q>);

enum Arrival<T, Q> {
    Now(Result<T, StoreError>),
    Later(BoxFuture<'static, Result<T, StoreError>>),
    /// The pool gets the asker when it has answered.
    Pooled(Asker<Q, T>, Arc<AnswerPool<Q, T>>),
    Taken,
}

impl<T> Answer<T> {
    /// A question in a box.
    pub(super) fn later(
        question: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Self {
        Self(Arrival::Later(Box::pin(question)))
    }
}

impl<T, Q> Answer<T, Q> {
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

    /// A question to an asker of `pool`'s.
    pub(super) fn pooled(pool: &Arc<AnswerPool<Q, T>>, question: Q) -> Self {
        Self(Arrival::Pooled(pool.begin(question), pool.clone()))
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
impl<T, Q> Unpin for Answer<T, Q> {}

impl<T, Q> Future for Answer<T, Q> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let later = match &mut self.0 {
            Arrival::Later(future) => Some(ready!(future.as_mut().poll(cx))),
            Arrival::Pooled(asker, _) => Some(ready!(asker.as_mut().poll_answer(cx))),
            Arrival::Now(_) | Arrival::Taken => None,
        };
        match (mem::replace(&mut self.0, Arrival::Taken), later) {
            (Arrival::Now(answer), _) | (Arrival::Later(_), Some(answer)) => Poll::Ready(answer),
            (Arrival::Pooled(asker, pool), Some(answer)) => {
                pool.keep(asker);
                Poll::Ready(answer)
            }
            _ => panic!("the answer was taken"),
        }
    }
}
