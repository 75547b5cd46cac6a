//! A request that waits for a lock.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::harness::Environment;
use super::recording::{Gate, asked_during};
use tower_distributed_lock::lock::HoldId;
use tower_distributed_lock::{LockError, LockGuard, LockMode, LockRequest};

/// A request in a task of its own, known to have found the lock taken.
#[derive(Debug)]
pub(super) struct Waiter {
    task: JoinHandle<Result<LockGuard, LockError>>,
    prompt: Duration,
}

impl Environment {
    /// Begins to wait. On return the request is in the queue of its process, or was refused by the store.
    pub(super) async fn waits(&self, request: LockRequest) -> Waiter {
        let before = self.asked().refused.clone();
        let mut acquiring = request.into_future();
        let first =
            poll_fn(|context| Poll::Ready(asked_during(|| acquiring.as_mut().poll(context))));
        let (first, asked) = first.await;
        assert!(first.is_pending(), "it did not have to wait: {first:?}");
        let waiter = Waiter::spawn(self, acquiring);
        match asked {
            Some(hold) => {
                let refused = async || self.asked().refused.contains(&hold);
                self.until("the store refuses", refused).await;
            }
            // Its place is in the store, where a task asks for it by a new id. The others ask again meanwhile.
            None if self.mode == LockMode::Fair => {
                let is_new = |hold: &HoldId| !before.contains(hold);
                let refused = async || self.asked().refused.iter().any(is_new);
                self.until("the store refuses", refused).await;
            }
            None => {}
        }
        waiter
    }

    /// The same for several requests, one after the other.
    pub(super) async fn all_wait(
        &self,
        requests: impl IntoIterator<Item = LockRequest>,
    ) -> Vec<Waiter> {
        let mut waiters = Vec::new();
        for request in requests {
            waiters.push(self.waits(request).await);
        }
        waiters
    }

    /// Three times the same request.
    pub(super) async fn three_wait(&self, request: LockRequest) -> [Waiter; 3] {
        let waiters = self.all_wait(vec![request; 3]).await;
        waiters.try_into().expect("three waiters")
    }

    /// Begins to wait for all of several keys, for any, or behind its owner. On return it has waited for a moment.
    pub(super) async fn waits_a_moment(&self, request: LockRequest) -> Waiter {
        let waiter = Waiter::spawn(self, request.into_future());
        waiter.keeps_waiting(self).await;
        waiter
    }

    /// A waiting request of a further process.
    pub(super) async fn waiter(&self, mode: LockMode) -> Waiter {
        self.waits(self.process().await.request().mode(mode)).await
    }

    /// A waiting request of a further process, which pauses there, like one that is stopped or swapped out: the store gets no
    /// further question and no withdrawal. A question that is under way is answered first: the store might grant it.
    pub(super) async fn frozen(&self) -> Frozen {
        let (process, gate) = self.process_behind_a_gate().await;
        let before = self.asked().refused.len();
        let waiter = Waiter::spawn(self, process.request().into_future());
        let settled = async || self.asked().has_settled(before);
        self.until("the store refuses", settled).await;
        gate.send_replace(false);
        assert!(!waiter.task.is_finished(), "it did not have to wait");
        Frozen { waiter, gate }
    }
}

impl Waiter {
    fn spawn(environment: &Environment, acquiring: Acquiring) -> Self {
        Self {
            task: tokio::spawn(acquiring),
            prompt: environment.prompt(),
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

    /// The same, without a poll.
    pub(super) async fn serve_promptly(self) {
        self.promptly().await.release().await.unwrap();
    }

    /// The result of the request.
    pub(super) async fn outcome(self) -> Result<LockGuard, LockError> {
        self.task.await.expect("the task does not panic")
    }

    /// Asserts that it continues to wait.
    pub(super) async fn keeps_waiting(&self, environment: &Environment) {
        sleep(environment.moment).await;
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

type Acquiring = Pin<Box<dyn Future<Output = Result<LockGuard, LockError>> + Send>>;

/// A waiter whose process is paused.
pub(super) struct Frozen {
    waiter: Waiter,
    gate: Gate,
}

impl Frozen {
    /// Lets it continue where it stopped.
    pub(super) fn thaw(self) -> Waiter {
        self.gate.send_replace(true);
        self.waiter
    }
}
