//! The end of a request: the release, and its confirmation.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use super::settings::Confirm;
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::store::Record;
use crate::telemetry;

/// How long the store may take to confirm, all attempts together. The client waits meanwhile.
const BUDGET: Duration = Duration::from_secs(1);

/// The proof that the lock of a response was held until the end of the request.
///
/// It is in the extensions of every response that a layer sends after the release of the lock, for layers further out. A
/// response without a lock has none, and neither has one whose body holds the lock
/// ([`ReleaseOn::BodyEnd`](super::ReleaseOn::BodyEnd)): its head goes out before the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Confirmation {
    /// The store: it carried the hold without a gap from the grant until the release. Two such requests never overlapped,
    /// whatever happened to clocks, processes and networks (S5).
    Store,
    /// The lease alone: by this process's clock it has not expired. The store was not asked ([`Confirm::Deadline`]) or did not
    /// answer ([`Confirm::Store`]). If the store has lost the hold meanwhile, in a failover or a crash, such a request may
    /// have overlapped another one.
    Lease,
}

impl Confirmation {
    /// Its name in lower case, for labels and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Lease => "lease",
        }
    }
}

/// The lock was lost, or it is unknown whether it was held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unconfirmed;

/// Releases, leaving `record` behind if the lock was held until then, and decides whether the response may go
/// (promise S5).
///
/// # Cancel safety
///
/// If the future is dropped, the release continues in the background.
pub(crate) async fn confirm(
    how: Confirm,
    guard: LockGuard,
    record: Option<Record>,
) -> Result<Confirmation, Unconfirmed> {
    let labels = guard.labels();
    // After the release has begun, no renewal changes the deadline.
    let deadline = guard.deadline();
    let confirmed = match how {
        Confirm::Deadline if guard.is_lost() => Err(Unconfirmed),
        Confirm::Deadline => Ok(Confirmation::Lease),
        Confirm::Store | Confirm::Strict => {
            let releasing = pin!(release(guard, record));
            match within(BUDGET, releasing).await {
                Some(Ok(())) => Ok(Confirmation::Store),
                Some(Err(LockError::Unavailable(_))) | None
                    if how == Confirm::Store && Instant::now() < deadline =>
                {
                    Ok(Confirmation::Lease)
                }
                _ => Err(Unconfirmed),
            }
        }
    };
    if let (Ok(confirmation), Some(labels)) = (confirmed, labels) {
        telemetry::confirmed(&labels, confirmation.as_str());
    }
    confirmed
}

/// Drives `work` for `limit` at most. Its timer is made when the work first waits.
async fn within<T>(limit: Duration, mut work: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    let mut late = pin!(None::<Sleep>);
    poll_fn(|cx| {
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(done));
        }
        if late.is_none() {
            late.set(Some(sleep(limit)));
        }
        let late = late.as_mut().as_pin_mut().expect("it was made above");
        late.poll(cx).map(|()| None)
    })
    .await
}

async fn release(guard: LockGuard, record: Option<Record>) -> Result<(), LockError> {
    match record {
        None => guard.release().await,
        Some(record) => guard.release_recording(record).await,
    }
}
