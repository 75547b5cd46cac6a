//! Work under a lock: a future that runs while a lock is held, work that is done once, and a leader of which a fleet has one.

use std::error::Error;
use std::pin::pin;
use std::time::Duration;

use tokio::time::Instant;

mod once;

pub use once::{Done, OnceError};

use crate::backoff::Backoff;
use crate::client::LockRequest;
use crate::error::LockError;
use crate::guard::{LockGuard, LockHandle};
use crate::limits::FOR_EVER;
use crate::telemetry::Seldom;

/// How long a candidate waits before it asks again after a failure of the store.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

impl LockRequest {
    /// Acquires the lock, runs `work` while it is held, releases it, and returns the value of `work`.
    ///
    /// `work` gets a handle of the lock, for its fencing token. Its future is dropped when the lock is lost. For work that needs
    /// time to end after a loss, see [`LockGuard::run_with_grace`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_distributed_lock::LockError> {
    /// use tower_distributed_lock::{LockClient, MemoryStore};
    ///
    /// let locks = LockClient::new(MemoryStore::new());
    /// let rows = locks.lock("lock:import").run(async |lock| {
    ///     println!("importing under {}", lock.key());
    ///     17
    /// }).await?;
    /// assert_eq!(rows, 17);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`LockRequest::acquire`]: `work` was not started. Those of [`LockGuard::run`]: `work` ran, or ran in part; with
    /// [`LockError::Lost`] it may not have been started.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops that of `work`, and releases the lock in the background.
    pub async fn run<F, W>(self, work: F) -> Result<W::Output, LockError>
    where
        F: FnOnce(LockHandle) -> W,
        W: Future,
    {
        self.acquire().await?.run(work).await
    }

    /// Does the same as [`run`](Self::run), and keeps the key taken for at least this long since the grant, also after `work` has
    /// ended, and also when the process ends before.
    ///
    /// It is for a job that runs once per tick although the clocks of the processes differ: with a wait of zero, the process whose
    /// clock is ahead runs the job, and the others find the key taken. The time must be longer than that between the first and the last
    /// process that asks for one tick: the difference of their clocks, plus the delay of their timers, plus the time that the store
    /// takes to answer. A process that asks later, because it was paused or its network stalled, runs the job again. Half the time
    /// between two ticks is a good choice. Where a second run does harm, use [`once`](Self::once) with the tick in the name: it keeps
    /// a record, and depends on no clock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_distributed_lock::LockError> {
    /// use std::time::Duration;
    /// use tower_distributed_lock::{LockClient, MemoryStore};
    ///
    /// let locks = LockClient::new(MemoryStore::new());
    /// let tick = || {
    ///     let request = locks.lock("lock:report").wait(Duration::ZERO);
    ///     request.run_at_least(Duration::from_secs(50), async |_| println!("reporting"))
    /// };
    /// tick().await?;
    /// assert!(tick().await.unwrap_err().is_busy()); // another process, a moment later
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// See [`LockGuard::hold_at_least`].
    ///
    /// # Errors
    ///
    /// Those of [`run`](Self::run) and of [`LockGuard::hold_at_least`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops that of `work`. The key stays taken for this time, if `work` has begun.
    pub async fn run_at_least<F, W>(self, time: Duration, work: F) -> Result<W::Output, LockError>
    where
        F: FnOnce(LockHandle) -> W,
        W: Future,
    {
        let guard = self.acquire().await?;
        guard.hold_at_least(time).await?;
        guard.run(work).await
    }
}

impl LockGuard {
    /// Runs `work` while the lock is held, releases the lock, and returns the value of `work`.
    ///
    /// The future of `work` is dropped when the lock is lost.
    ///
    /// # Errors
    ///
    /// The value of `work` is returned only if the release is confirmed, as by [`LockGuard::release`]:
    ///
    /// * [`LockError::Lost`] if the lock was lost before, so that `work` was not started; if it was lost while `work` ran, or was
    ///   gone at its end. Another holder may have run.
    /// * [`LockError::Unconfirmed`] if `work` ended and the store did not confirm the release.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops that of `work`, and releases the lock in the background.
    pub async fn run<F, W>(self, work: F) -> Result<W::Output, LockError>
    where
        F: FnOnce(LockHandle) -> W,
        W: Future,
    {
        self.run_with_grace(Duration::ZERO, work).await
    }

    /// Does the same as [`LockGuard::run`], and gives `work` this time to end after the lock was lost.
    ///
    /// `work` learns of the loss by [`LockHandle::lost`], which serves as its cancellation signal. The value of work that ends
    /// after the loss is dropped: the result is [`LockError::Lost`].
    ///
    /// ```
    /// # async fn example(locks: tower_distributed_lock::LockClient) -> Result<(), tower_distributed_lock::LockError> {
    /// use std::time::Duration;
    ///
    /// # async fn next_page() -> bool { false }
    /// # async fn close_file() {}
    /// locks.lock("lock:export").await?.run_with_grace(Duration::from_secs(1), async |lock| {
    ///     while !lock.is_lost() && next_page().await {}
    ///     close_file().await;
    /// }).await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`LockGuard::run`].
    ///
    /// # Cancel safety
    ///
    /// That of [`LockGuard::run`].
    pub async fn run_with_grace<F, W>(
        self,
        grace: Duration,
        work: F,
    ) -> Result<W::Output, LockError>
    where
        F: FnOnce(LockHandle) -> W,
        W: Future,
    {
        let value = self.while_held(grace, work).await;
        let released = self.release().await;
        value
            .ok_or(LockError::Lost)
            .and_then(|value| released.map(|()| value))
    }

    /// Keeps the keys taken for at least this long from now, also after the release, and also when the process ends before.
    ///
    /// [`LockGuard::release`] says at once whether the lock was held until then, and does not wait. The store keeps the hold, which is
    /// renewed no more, and this process releases it when the time is over;
    /// [`LockClient::shutdown`](crate::LockClient::shutdown) leaves it in the store. If the process ends earlier, the key is free
    /// when the time is over and the lease too: choose a lease that is not longer than this time for a process that runs one job.
    /// It costs one round trip.
    ///
    /// # Errors
    ///
    /// * [`LockError::Invalid`] if the mode is not exclusive, or if a fixed lease or the longest hold is shorter than this time.
    /// * [`LockError::Lost`] or [`LockError::Unavailable`] if the store does not say that it carries every key: drop the guard then.
    ///
    /// # Cancel safety
    ///
    /// The question continues in the background.
    pub async fn hold_at_least(&self, time: Duration) -> Result<(), LockError> {
        if time.is_zero() {
            return Ok(());
        }
        let time = time.min(FOR_EVER);
        self.check_least(time)?;
        self.keep_until(Instant::now() + time).await
    }

    /// The value of `work`; `None` if the lock was lost before it ended. Then it has this time to end. It is not started under a
    /// lock that is lost already.
    async fn while_held<F, W>(&self, grace: Duration, work: F) -> Option<W::Output>
    where
        F: FnOnce(LockHandle) -> W,
        W: Future,
    {
        if self.is_lost() {
            return None;
        }
        let mut work = pin!(work(self.handle()));
        tokio::select! {
            // If the work ends and a loss is noticed at the same moment, the release decides.
            biased;
            value = &mut work => Some(value),
            () = self.lost() => {
                // Work without a grace is not polled again: a timer of no time would let it run for another moment.
                if !grace.is_zero() {
                    // The value is dropped, because the work ended without the lock.
                    drop(tokio::time::timeout(grace, work).await);
                }
                None
            }
        }
    }
}

impl LockRequest {
    /// Waits until this process is the leader, and then runs `work`, until `work` ends.
    ///
    /// One process of the fleet runs `work`; the others wait, however long the [`wait`](Self::wait) is. When `work` ends, the
    /// leadership is released, and the next candidate takes over within about a round trip. When the leadership is lost, `work` has
    /// the `grace` to end, as with [`LockGuard::run_with_grace`]; without one its future is dropped. Then the process is a candidate
    /// again; `work` is called once for each term. The next leader may work during the grace. The [`lease`](Self::lease) is how long
    /// the leadership of a dead process lasts.
    ///
    /// `work` gets a handle of the lock. Its [fencing token](LockHandle::fencing_token) numbers the terms: a later term has a
    /// larger one. With a store without tokens, such as a quorum, it is `None`. Let the resource refuse a token that is smaller
    /// than one it has seen: a leader that was paused does not know that its term is over.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_distributed_lock::LockError> {
    /// use std::time::Duration;
    /// use tower_distributed_lock::{LockClient, MemoryStore};
    ///
    /// let locks = LockClient::new(MemoryStore::new());
    /// let ticks = locks.lock("lock:scheduler").lead(Duration::ZERO, async |lock| {
    ///     let term = lock.fencing_token();
    ///     println!("leader in term {term:?}");
    ///     3 // ticks; a service loops here until it stops
    /// }).await?;
    /// assert_eq!(ticks, 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Only errors that do not end by waiting: [`LockError::Shutdown`], `Conflict`, `Unsupported`, `Upgrade`, and `Invalid`, such as for
    /// several keys, an owner, or a mode that is not exclusive, which would have several leaders. A store
    /// that cannot be reached or that refuses is asked again, with growing pauses of at most two seconds; a warning once a minute
    /// has the cause, such as a right that the Redis user lacks. If `work` ended and its release was not
    /// confirmed, the result is that error: its term may have overlapped the next.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops that of `work`, and releases the leadership in the background.
    pub async fn lead<F, W>(self, grace: Duration, mut work: F) -> Result<W::Output, LockError>
    where
        F: FnMut(LockHandle) -> W,
        W: Future,
    {
        self.sole_key()?;
        let request = self.wait(FOR_EVER).fenced_if_supported();
        let mut pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let failures = Seldom::default();
        loop {
            let guard = match request.clone().acquire().await {
                Ok(guard) => guard,
                Err(
                    error @ (LockError::Busy { .. }
                    | LockError::Overloaded
                    | LockError::Unavailable(_)
                    | LockError::Lost),
                ) => {
                    if let Some(left_out) = failures.due() {
                        let error = &error as &dyn Error;
                        tracing::warn!(error, left_out, "a candidate cannot become the leader now");
                    }
                    tokio::time::sleep(pauses.next()).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            pauses.reset();
            let value = guard.while_held(grace, &mut work).await;
            // With a grace, work that ends after the loss has tidied up, and has not ended the term by itself.
            let has_ended = grace.is_zero() || !guard.is_lost();
            let released = guard.release().await;
            match value {
                Some(value) if has_ended => return released.map(|()| value),
                _ => tracing::warn!("the leadership was lost: this process is a candidate again"),
            }
        }
    }
}
