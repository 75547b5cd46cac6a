//! Futures of answers whose memory serves one question after the other.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use crate::error::StoreError;

/// The most futures that are kept for later questions. One of a `RedisStore` has two kilobytes.
const MOST_IDLE: usize = 64;

/// The futures of one kind of question that are idle, for the next questions of that kind.
///
/// The future of a store's answer is larger than what allocators keep ready for each thread, and each pair needs two of them. No
/// caller waits for the mutex: one that finds it locked allocates a future, or frees it. So it is std's, and an exploration
/// has no other order of events to try here.
pub(super) struct AnswerPool<Q, T> {
    idle: Mutex<Vec<Idle<Q, T>>>,
}

type Idle<Q, T> = Pin<Box<dyn Reusable<Q, T>>>;

/// The future of an answer. It belongs to a pool.
pub(super) trait Pooled<T>: Send {
    fn poll_answer(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, StoreError>>;

    /// Returns to its pool. The question was answered.
    fn recycle(self: Pin<Box<Self>>);
}

/// The same, with the type of its questions.
trait Reusable<Q, T>: Pooled<T> {
    fn ask(self: Pin<&mut Self>, question: Q, pool: Arc<AnswerPool<Q, T>>);
}

impl<Q, T> Default for AnswerPool<Q, T> {
    fn default() -> Self {
        Self {
            idle: Mutex::default(),
        }
    }
}

impl<Q: Send + 'static, T: 'static> AnswerPool<Q, T> {
    /// The answer to a question. `ask` makes the future, and is the same for all questions of a pool.
    pub(super) fn answer<A, F>(self: Arc<Self>, question: Q, ask: A) -> Pin<Box<dyn Pooled<T>>>
    where
        A: Fn(Q) -> F + Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let idle = self.idle.try_lock().ok().and_then(|mut idle| idle.pop());
        let mut future = idle.unwrap_or_else(|| {
            Box::pin(PooledFuture {
                ask,
                future: None,
                pool: None,
            })
        });
        future.as_mut().ask(question, self);
        future
    }

    fn keep(&self, future: Idle<Q, T>) {
        if let Ok(mut idle) = self.idle.try_lock()
            && idle.len() < MOST_IDLE
        {
            idle.push(future);
        }
    }
}

pin_project! {
    /// A future of a pool. While it is idle, it has neither a question nor a reference to the pool.
    struct PooledFuture<Q, T, A, F> {
        ask: A,
        #[pin]
        future: Option<F>,
        pool: Option<Arc<AnswerPool<Q, T>>>,
    }
}

impl<Q, T, A, F> Pooled<T> for PooledFuture<Q, T, A, F>
where
    Q: Send + 'static,
    T: 'static,
    A: Fn(Q) -> F + Send + 'static,
    F: Future<Output = Result<T, StoreError>> + Send + 'static,
{
    fn poll_answer(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, StoreError>> {
        let mut future = self.project().future;
        let asked = future.as_mut().as_pin_mut();
        let answer = ready!(asked.expect("a question is under way").poll(cx));
        future.set(None);
        Poll::Ready(answer)
    }

    fn recycle(mut self: Pin<Box<Self>>) {
        if let Some(pool) = self.as_mut().project().pool.take() {
            pool.keep(self);
        }
    }
}

impl<Q, T, A, F> Reusable<Q, T> for PooledFuture<Q, T, A, F>
where
    Q: Send + 'static,
    T: 'static,
    A: Fn(Q) -> F + Send + 'static,
    F: Future<Output = Result<T, StoreError>> + Send + 'static,
{
    fn ask(self: Pin<&mut Self>, question: Q, pool: Arc<AnswerPool<Q, T>>) {
        let mut this = self.project();
        let future = (this.ask)(question);
        this.future.set(Some(future));
        *this.pool = Some(pool);
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use futures_util::FutureExt;

    use super::super::Answer;
    use super::*;

    type Pool = Arc<AnswerPool<(u32, Arc<()>), u32>>;

    fn answer(pool: &Pool, number: u32, owned: &Arc<()>) -> Answer<u32> {
        let double = |(number, _owned): (u32, Arc<()>)| async move {
            tokio::task::yield_now().await;
            Ok(2 * number)
        };
        Answer::pooled(pool.clone().answer((number, owned.clone()), double))
    }

    fn idle(pool: &Pool) -> usize {
        pool.idle.lock().expect("no test panics with it").len()
    }

    #[tokio::test]
    async fn one_future_serves_one_question_after_the_other() {
        let (pool, owned) = (Pool::default(), Arc::new(()));
        for number in 0..10 {
            let doubled = answer(&pool, number, &owned).await;
            assert_eq!(doubled.expect("it never fails"), 2 * number);
            assert_eq!(idle(&pool), 1);
        }
        // An idle future has nothing of its question, and no reference to the pool.
        assert_eq!(
            (Arc::strong_count(&owned), Arc::strong_count(&pool)),
            (1, 1)
        );
    }

    #[tokio::test]
    async fn questions_at_the_same_time_have_a_future_each() {
        let (pool, owned) = (Pool::default(), Arc::new(()));
        let most = u32::try_from(MOST_IDLE).expect("few");
        let asked = (0..most + 5).map(|number| answer(&pool, number, &owned));
        let answers = futures_util::future::join_all(asked).await;
        for (number, doubled) in (0..).zip(answers) {
            assert_eq!(doubled.expect("it never fails"), 2 * number);
        }
        assert_eq!(idle(&pool), MOST_IDLE);
    }

    #[test]
    fn a_question_that_is_dropped_leaves_nothing() {
        let (pool, owned) = (Pool::default(), Arc::new(()));
        let mut dropped = answer(&pool, 1, &owned);
        assert!((&mut dropped).now_or_never().is_none());
        drop(dropped);
        assert_eq!((idle(&pool), Arc::strong_count(&owned)), (0, 1));
    }

    #[test]
    fn a_pool_that_is_in_use_makes_no_caller_wait() {
        let (pool, owned) = (Pool::default(), Arc::new(()));
        let in_use = pool.idle.lock().expect("no test panics with it");
        let at_once = |_| ready(Ok(7));
        let answer = Answer::pooled(pool.clone().answer((1, owned.clone()), at_once));
        let answer = answer.now_or_never().expect("it is there at once");
        assert_eq!(answer.expect("it never fails"), 7);
        drop(in_use);
        assert_eq!(idle(&pool), 0);
    }
}
