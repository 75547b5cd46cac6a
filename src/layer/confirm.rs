//! The end of a request.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::settings::Confirm;
use crate::error::LockError;
use crate::guard::LockGuard;
use crate::store::Record;

/// How long the store may take to confirm, all tries together. The client is waiting.
const BUDGET: Duration = Duration::from_secs(1);

/// The lock was lost, or nobody can say that it was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unconfirmed;

/// Releases, leaving `record` behind if the lock was held until then, and decides whether the response may go
/// (GUARANTEES S5).
///
/// # Cancel safety
///
/// Dropping the future leaves the release to the background.
pub(crate) async fn confirm(
    how: Confirm,
    guard: LockGuard,
    record: Option<Record>,
) -> Result<(), Unconfirmed> {
    // No renewal moves it any more once the release has begun.
    let deadline = guard.deadline();
    let confirmed = match how {
        Confirm::Deadline => !guard.is_lost(),
        Confirm::Store | Confirm::Strict => match timeout(BUDGET, release(guard, record)).await {
            Ok(Ok(())) => true,
            Ok(Err(LockError::Unavailable(_))) | Err(_) => {
                how == Confirm::Store && Instant::now() < deadline
            }
            Ok(Err(_)) => false,
        },
    };
    if confirmed { Ok(()) } else { Err(Unconfirmed) }
}

async fn release(guard: LockGuard, record: Option<Record>) -> Result<(), LockError> {
    match record {
        None => guard.release().await,
        Some(record) => guard.release_recording(record).await,
    }
}
