//! Askers of questions, whose memory serves one question after the other.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::error::StoreError;

/// The most askers that are kept for later questions. One of a `RedisStore` has two kilobytes.
const MOST_IDLE: usize = 64;

/// Asks one question at a time.
pub(super) trait Ask<Q, T>: Send {
    /// Begins a question. It is asked at the next poll.
    fn begin(self: Pin<&mut Self>, question: Q);

    /// Polls the question that was begun last.
    fn poll_answer(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, StoreError>>;
}

pub(super) type Asker<Q, T> = Pin<Box<dyn Ask<Q, T>>>;

/// The askers of one kind of question that have an answer, for the next questions of that kind.
///
/// The future of a store's answer is larger than what allocators keep ready for each thread, and each pair needs two of them. A
/// question is made in its asker, because each move of such a future copies all of it. The mutex protects the askers
/// that have answered. No caller waits for it: one that finds it locked allocates an asker, or frees it. So it is std's, and an exploration has no other order of events to try here.
pub(super) struct AnswerPool<Q, T> {
    idle: Mutex<Vec<Asker<Q, T>>>,
    new: Box<dyn Fn() -> Asker<Q, T> + Send + Sync>,
}

impl<Q, T> AnswerPool<Q, T> {
    /// A pool of questions that are asked by `ask`.
    pub(super) fn new<F>(ask: impl Fn(Q) -> F + Clone + Send + Sync + 'static) -> Arc<Self>
    where
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let new = move || -> Asker<Q, T> {
            let ask = ask.clone();
            Box::pin(InPlace { ask, asked: None })
        };
        Arc::new(Self {
            idle: Mutex::default(),
            new: Box::new(new),
        })
    }

    /// Begins a question in the memory of an earlier one.
    pub(super) fn begin(&self, question: Q) -> Asker<Q, T> {
        let idle = self.idle.try_lock().ok().and_then(|mut idle| idle.pop());
        let mut asker = idle.unwrap_or_else(&self.new);
        asker.as_mut().begin(question);
        asker
    }

    /// Keeps the memory of a question that was answered. An `async` block that has ended has dropped what it owned.
    pub(super) fn keep(&self, answered: Asker<Q, T>) {
        if let Ok(mut idle) = self.idle.try_lock()
            && idle.len() < MOST_IDLE
        {
            idle.push(answered);
        }
    }
}

pin_project! {
    struct InPlace<A, F> {
        ask: A,
        #[pin]
        asked: Option<F>,
    }
}

impl<Q, T, A, F> Ask<Q, T> for InPlace<A, F>
where
    A: Fn(Q) -> F + Send,
    F: Future<Output = Result<T, StoreError>> + Send,
{
    fn begin(self: Pin<&mut Self>, question: Q) {
        let mut this = self.project();
        this.asked.set(Some((this.ask)(question)));
    }

    fn poll_answer(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, StoreError>> {
        let asked = self.project().asked.as_pin_mut();
        asked.expect("a question was begun").poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use futures_util::FutureExt;

    use super::super::Answer;
    use super::*;

    /// A number, and what the question owns.
    type Question = (u32, Arc<()>);
    type Pool = Arc<AnswerPool<Question, u32>>;

    fn pool() -> Pool {
        AnswerPool::new(|(number, owned): Question| async move {
            tokio::task::yield_now().await;
            drop(owned);
            Ok(2 * number)
        })
    }

    fn answer(pool: &Pool, number: u32, owned: &Arc<()>) -> Answer<u32, Question> {
        Answer::pooled(pool, (number, owned.clone()))
    }

    fn idle(pool: &Pool) -> usize {
        pool.idle.lock().expect("no test panics with it").len()
    }

    #[tokio::test]
    async fn one_asker_serves_one_question_after_the_other() {
        let (pool, owned) = (pool(), Arc::new(()));
        for number in 0..10 {
            let doubled = answer(&pool, number, &owned).await;
            assert_eq!(doubled.expect("it never fails"), 2 * number);
            assert_eq!(idle(&pool), 1);
        }
        // An idle asker has nothing of its question, and no reference to the pool.
        assert_eq!(
            (Arc::strong_count(&owned), Arc::strong_count(&pool)),
            (1, 1)
        );
    }

    #[tokio::test]
    async fn questions_at_the_same_time_have_an_asker_each() {
        let (pool, owned) = (pool(), Arc::new(()));
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
        let (pool, owned) = (pool(), Arc::new(()));
        let mut dropped = answer(&pool, 1, &owned);
        assert!((&mut dropped).now_or_never().is_none());
        drop(dropped);
        assert_eq!((idle(&pool), Arc::strong_count(&owned)), (0, 1));
    }

    #[test]
    fn a_pool_that_is_in_use_makes_no_caller_wait() {
        let pool: Arc<AnswerPool<u32, u32>> = AnswerPool::new(|number| ready(Ok(number)));
        let in_use = pool.idle.lock().expect("no test panics with it");
        let answer = Answer::pooled(&pool, 7);
        let answer = answer.now_or_never().expect("it is there at once");
        assert_eq!(answer.expect("it never fails"), 7);
        drop(in_use);
        assert!(pool.idle.lock().expect("no test panics with it").is_empty());
    }
}
