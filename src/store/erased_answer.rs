//! The answer of a store without its type.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::FutureExt;
use tokio_util::sync::ReusableBoxFuture;

use super::answer_pool::{AnswerFuture, AnswerPool};
use crate::error::StoreError;

/// The answer to a question: there already, or a future.
pub(crate) struct Answer<T>(Arrival<T>);

enum Arrival<T> {
    Now(Result<T, StoreError>),
    /// The pool gets the future when it has ended.
    Later(AnswerFuture<T>, Option<Arc<AnswerPool<T>>>),
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

    /// A question in a box; one of `pool`'s if there is a pool.
    pub(super) fn later(
        question: impl Future<Output = Result<T, StoreError>> + Send + 'static,
        pool: Option<Arc<AnswerPool<T>>>,
    ) -> Self {
        let future = match &pool {
            Some(pool) => pool.boxed(question),
            None => ReusableBoxFuture::new(question),
        };
        Self(Arrival::Later(future, pool))
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
        let later = match &mut self.0 {
            Arrival::Later(future, _) => Some(ready!(future.poll(cx))),
            Arrival::Now(_) | Arrival::Taken => None,
        };
        match (mem::replace(&mut self.0, Arrival::Taken), later) {
            (Arrival::Now(answer), _) => Poll::Ready(answer),
            (Arrival::Later(future, pool), Some(answer)) => {
                if let Some(pool) = pool {
                    pool.keep(future);
                }
                Poll::Ready(answer)
            }
            _ => panic!("the answer was taken"),
        }
    }
}
