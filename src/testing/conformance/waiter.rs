//! A request that waits for a lock.

use std::future::{IntoFuture, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use crate::{LockError, LockGuard, LockMode, LockRequest};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::env::Env;
use super::observed::Calls;

/// A request in a task of its own, known to have found the lock taken.
#[derive(Debug)]
pub(super) struct Waiter {
    task: JoinHandle<Result<LockGuard, LockError>>,
    prompt: Duration,
}

impl Waiter {
    /// Begins to wait. On return the request is in the queue of its process, or was refused by the store.
    pub(super) async fn queue(env: &Env, request: LockRequest) -> Self {
        let mut acquiring = request.into_future();
        let first = poll_fn(|context| {
            Poll::Ready(Calls::asked_during(|| acquiring.as_mut().poll(context)))
        });
        let (first, asked) = first.await;
        assert!(first.is_pending(), "it did not have to wait: {first:?}");
        let waiter = Self {
            task: tokio::spawn(acquiring),
            prompt: env.prompt(),
        };
        if let Some(hold) = asked {
            let refused = async || env.calls.is_refused(hold);
            env.until("the store refuses", refused).await;
        }
        waiter
    }

    /// The same for several requests, one after the other.
    pub(super) async fn queue_all(
        env: &Env,
        requests: impl IntoIterator<Item = LockRequest>,
    ) -> Vec<Self> {
        let mut waiters = Vec::new();
        for request in requests {
            waiters.push(Self::queue(env, request).await);
        }
        waiters
    }

    /// Three times the same request.
    pub(super) async fn three(env: &Env, request: LockRequest) -> [Self; 3] {
        let waiters = Self::queue_all(env, vec![request; 3]).await;
        waiters.try_into().expect("three waiters")
    }

    /// Begins to wait for all of several keys, or for any. On return it has waited for a moment.
    pub(super) async fn begin(env: &Env, request: LockRequest) -> Self {
        let waiter = Self {
            task: tokio::spawn(request.into_future()),
            prompt: env.prompt(),
        };
        waiter.keeps_waiting(env).await;
        waiter
    }

    /// Begins to wait, and pauses there, like a process that is stopped or swapped out: the store gets no further question
    /// and no withdrawal. A question that is under way is answered first: the store might grant it.
    pub(super) async fn queue_frozen(env: &Env, request: LockRequest) -> Frozen {
        let mut acquiring = request.into_future();
        let mut hold = None;
        let asking = poll_fn(|context| {
            let (polled, asked) = Calls::asked_during(|| acquiring.as_mut().poll(context));
            hold = asked.or(hold);
            let is_refused = hold.is_some_and(|hold| env.calls.is_refused(hold));
            match polled {
                Poll::Pending if is_refused && env.calls.under_way() == 0 => Poll::Ready(None),
                other => other.map(Some),
            }
        });
        let refusal = asking.await;
        assert!(refusal.is_none(), "it did not have to wait: {refusal:?}");
        Frozen {
            acquiring,
            prompt: env.prompt(),
        }
    }

    /// The lock, which must be granted without a poll.
    pub(super) async fn promptly(self) -> LockGuard {
        let prompt = self.prompt;
        let granted = timeout(prompt, self.granted()).await;
        granted.unwrap_or_else(|_| panic!("not woken within {prompt:?}"))
    }

    /// The lock.
    pub(super) async fn granted(self) -> LockGuard {
        self.outcome().await.expect("the lock is granted")
    }

    /// Waits for the lock, and releases it.
    pub(super) async fn serve(self) {
        self.granted().await.release().await.unwrap();
    }

    /// The result of the request.
    pub(super) async fn outcome(self) -> Result<LockGuard, LockError> {
        self.task.await.expect("the task does not panic")
    }

    /// Asserts that it continues to wait.
    pub(super) async fn keeps_waiting(&self, env: &Env) {
        sleep(env.moment).await;
        assert!(!self.task.is_finished(), "it does not wait any more");
    }

    /// Drops the request.
    pub(super) async fn cancel(self) {
        self.task.abort();
        let cancelled = self.task.await.expect_err("it is still waiting");
        assert!(cancelled.is_cancelled());
    }

    /// Drops the request, or the lock that it got meanwhile.
    pub(super) async fn cancel_or_release(self) {
        self.task.abort();
        drop(self.task.await);
    }
}

impl Env {
    /// A waiting request of another process.
    pub(super) async fn waiter(&self, mode: LockMode) -> Waiter {
        Waiter::queue(self, self.request(mode).await).await
    }

    /// The same, of a process that is paused.
    pub(super) async fn frozen(&self, mode: LockMode) -> Frozen {
        Waiter::queue_frozen(self, self.request(mode).await).await
    }
}

/// A waiter that is paused.
pub(super) struct Frozen {
    acquiring: Pin<Box<dyn Future<Output = Result<LockGuard, LockError>> + Send>>,
    prompt: Duration,
}

impl Frozen {
    /// Lets it continue where it stopped.
    pub(super) fn thaw(self) -> Waiter {
        Waiter {
            task: tokio::spawn(self.acquiring),
            prompt: self.prompt,
        }
    }
}
