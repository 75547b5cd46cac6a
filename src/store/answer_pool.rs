//! Futures of answers whose memory serves one question after the other.

use std::future::Future;
use std::sync::Mutex;

use tokio_util::sync::ReusableBoxFuture;

use crate::error::StoreError;

/// The most futures that are kept for later questions. One of a `RedisStore` has two kilobytes.
const MOST_IDLE: usize = 64;

/// The future of an answer.
pub(super) type AnswerFuture<T> = ReusableBoxFuture<'static, Result<T, StoreError>>;

/// The futures of one kind of question that have ended, for the next questions of that kind.
///
/// The future of a store's answer is larger than what allocators keep ready for each thread, and each pair needs two of them. No
/// caller waits for the mutex: one that finds it locked allocates a future, or frees it. So it is std's, and an exploration
/// has no other order of events to try here.
pub(super) struct AnswerPool<T> {
    idle: Mutex<Vec<AnswerFuture<T>>>,
}

impl<T> Default for AnswerPool<T> {
    fn default() -> Self {
        Self {
            idle: Mutex::default(),
        }
    }
}

impl<T> AnswerPool<T> {
    /// Boxes a question in the memory of an earlier one. The memory fits if both were made by the same `async` block.
    pub(super) fn boxed(
        &self,
        question: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> AnswerFuture<T> {
        let idle = self.idle.try_lock().ok().and_then(|mut idle| idle.pop());
        match idle {
            Some(mut future) => {
                future.set(question);
                future
            }
            None => ReusableBoxFuture::new(question),
        }
    }

    /// Keeps the memory of a question that was answered. An `async` block that has ended has dropped what it owned.
    pub(super) fn keep(&self, answered: AnswerFuture<T>) {
        if let Ok(mut idle) = self.idle.try_lock()
            && idle.len() < MOST_IDLE
        {
            idle.push(answered);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::Arc;

    use futures_util::FutureExt;

    use super::super::Answer;
    use super::*;

    type Pool = Arc<AnswerPool<u32>>;

    fn answer(pool: &Pool, number: u32, owned: &Arc<()>) -> Answer<u32> {
        let owned = owned.clone();
        let question = async move {
            tokio::task::yield_now().await;
            drop(owned);
            Ok(2 * number)
        };
        Answer::later(question, Some(pool.clone()))
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
        let pool = Pool::default();
        let in_use = pool.idle.lock().expect("no test panics with it");
        let answer = Answer::later(ready(Ok(7)), Some(pool.clone()));
        let answer = answer.now_or_never().expect("it is there at once");
        assert_eq!(answer.expect("it never fails"), 7);
        drop(in_use);
        assert_eq!(idle(&pool), 0);
    }
}
