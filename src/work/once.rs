//! Work that runs once under a name, and whose value is recorded.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::{LockClient, LockRequest};
use crate::error::LockError;
use crate::guard::LockHandle;
use crate::limits::FOR_EVER;
use crate::lock::LockKey;
use crate::store::{Feature, Record};

/// The value of work that ran once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Done<T> {
    /// The return value of the work.
    pub value: T,
    /// Whether the work ran before, and the value is the recorded one.
    pub replayed: bool,
}

/// Why there is no value.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum OnceError<E> {
    /// The work was not started, because its lock was not granted, or was lost before, or its record could not be
    /// read. [`LockError::Busy`]: it runs elsewhere.
    #[error("the work was not started")]
    NotStarted(#[source] LockError),
    /// The work returned this error. Nothing is recorded: a repeat runs it again.
    #[error(transparent)]
    Work(E),
    /// The lock was lost before the end of the work, which was dropped. Another process may run it.
    #[error("the lock was lost while the work ran")]
    Lost,
    /// The work has ended, and it is not confirmed that its value is remembered. A repeat may run it again; with
    /// [`LockError::Lost`], another process may have run it at the same time.
    #[error("the work has ended, and it is not confirmed that its value is remembered")]
    Unconfirmed(#[source] LockError),
    /// The work has ended, and its value cannot be written as JSON. Nothing is remembered: a repeat runs it again.
    #[error("the value of the work cannot be written as JSON")]
    Unwritable(#[source] Arc<serde_json::Error>),
    /// What is remembered under the name is no such value. The work was not started. Choose another name when the type of
    /// the value changes.
    #[error("what is remembered under the name is no value of this work")]
    Unreadable(#[source] Arc<serde_json::Error>),
}

impl LockRequest {
    /// Runs `work` once under the name of the lock, in one process of all, and remembers its value for the `retention`; or returns the
    /// value that is remembered.
    ///
    /// It is for jobs and for consumers of queues: name the lock by the identity of the work, such as the day of a nightly job or the
    /// id of a message.
    ///
    /// 1. A value that is remembered is returned at once, without a lock; `work` is not called.
    /// 2. `work` runs under the lock of the name. A repeat meanwhile waits, and then gets the value.
    /// 3. A value is remembered, as JSON, in the step that releases the lock: no other process can begin in between. It is
    ///    returned when the store has confirmed that, and that the lock was held until then. So at most one execution is
    ///    confirmed while the record is retained.
    /// 4. An error of `work` is not remembered, and the lock is free for a repeat.
    /// 5. The future of `work` is dropped when its lock is lost, or when this future is.
    ///
    /// **At most one confirmed execution is not exactly one.** A process that dies in the middle, or a store that loses its
    /// data, lets a repeat run what was half done. What the work does elsewhere must bear that: see
    /// [the guide](https://github.com/tower-distributed-lock/tower-distributed-lock/blob/main/docs/guide/exactly_once.md).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::convert::Infallible;
    /// use std::time::Duration;
    /// use tower_distributed_lock::{LockClient, MemoryStore};
    ///
    /// let locks = LockClient::new(MemoryStore::new());
    /// let week = Duration::from_secs(7 * 24 * 60 * 60);
    /// let bill = || {
    ///     locks.lock("billing:2026-11-22").once(week, async |_lock| {
    ///         println!("sending invoices");
    ///         Ok::<u32, Infallible>(17)
    ///     })
    /// };
    /// let first = bill().await?;
    /// let repeat = bill().await?; // in another process, or tomorrow
    /// assert_eq!((first.value, first.replayed), (17, false));
    /// assert_eq!((repeat.value, repeat.replayed), (17, true));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # How long to wait
    ///
    /// The [`wait`](Self::wait) is how long a repeat waits while the work runs elsewhere (default 45 s, longer than the lease of a
    /// process that has died). The lease of a process that died is renewed until its death. A caller that began to wait a time *t*
    /// before that death needs *t* and the [`lease`](Self::lease), so the default covers a death within the first 15 s. For a nightly
    /// job that every process begins at once, set it to the job's longest time plus the lease: otherwise all of them may have given up
    /// when the one that ran it dies.
    ///
    /// # Errors
    ///
    /// [`OnceError`] says whether `work` was started, and what is remembered. It is not started for several keys, with an
    /// [`owner`](Self::owner), in a mode that is not exclusive, or with a retention of less than a millisecond.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops that of `work`, and releases the lock in the background; nothing is remembered, unless the
    /// work had ended.
    pub async fn once<F, W, T, E>(
        self,
        retention: Duration,
        work: F,
    ) -> Result<Done<T>, OnceError<E>>
    where
        F: FnOnce(LockHandle) -> W,
        W: Future<Output = Result<T, E>>,
        T: Serialize + DeserializeOwned,
    {
        let records = Records::of(&self, retention).map_err(OnceError::NotStarted)?;
        if let Some(value) = records.read().await? {
            return Ok(Done::replayed(value));
        }
        let guard = self.acquire().await.map_err(OnceError::NotStarted)?;
        // The work may have run between the first read and the grant. From here no other process records a value.
        if let Some(value) = records.read().await? {
            guard.discard();
            return Ok(Done::replayed(value));
        }
        if guard.is_lost() {
            return Err(OnceError::NotStarted(LockError::Lost));
        }
        let value = match guard.while_held(Duration::ZERO, work).await {
            None => return Err(OnceError::Lost),
            Some(Err(error)) => {
                // Awaited, so that a repeat that follows finds the lock free. The error says more than the release.
                drop(guard.release().await);
                return Err(OnceError::Work(error));
            }
            Some(Ok(value)) => value,
        };
        let written = serde_json::to_vec(&value);
        let written = written.map_err(|error| OnceError::Unwritable(Arc::new(error)))?;
        let record = Record::new(written, retention.min(FOR_EVER));
        let recorded = guard.end(Some(record)).in_time().await;
        recorded.map_err(OnceError::Unconfirmed)?;
        Ok(Done {
            value,
            replayed: false,
        })
    }
}

/// Where the value of a request's work is remembered.
struct Records {
    client: LockClient,
    key: LockKey,
}

impl Records {
    /// # Errors
    ///
    /// The value cannot be remembered as long as that, or others could run the work.
    fn of(request: &LockRequest, retention: Duration) -> Result<Self, LockError> {
        let client = request.client().clone();
        if !client.keeps_records() {
            return Err(LockError::Unsupported(Feature::Records.into()));
        }
        if retention < Duration::from_millis(1) {
            return Err(LockError::invalid(
                "a value that is remembered for no time is done again at once: choose a longer retention",
            ));
        }
        let key = request.sole_key()?.clone();
        Ok(Self { client, key })
    }

    async fn read<T: DeserializeOwned, E>(&self) -> Result<Option<T>, OnceError<E>> {
        let record = self.client.record(&self.key).await;
        let record: Option<Bytes> = record.map_err(OnceError::NotStarted)?;
        let value = record.map(|record| serde_json::from_slice(&record));
        let value = value.transpose();
        value.map_err(|error| OnceError::Unreadable(Arc::new(error)))
    }
}

impl<T> Done<T> {
    fn replayed(value: T) -> Self {
        Self {
            value,
            replayed: true,
        }
    }
}
