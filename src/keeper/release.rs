//! Releases, driven to an answer.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::FIRST_BACKOFF;
use super::live::LiveHold;
use crate::error::{LockError, StoreErrorKind};
use crate::store::{DynStore, Record, Standing};

/// The longest pause between two tries to release.
const LONGEST_BACKOFF: Duration = Duration::from_secs(1);

/// Releases in the store, trying again until it answers or the lease is over anyway. `asked` is called when the store
/// was asked once, whatever it answered, with how many have heard of the release.
pub(super) async fn release(
    store: Arc<dyn DynStore>,
    live: &LiveHold,
    record: Option<Record>,
    asked: impl FnOnce(usize) + Send,
) -> Result<(), LockError> {
    let mut asked = Some(asked);
    let over = Instant::now() + live.lease.duration();
    let mut backoff = FIRST_BACKOFF;
    let mut unanswered = None;
    loop {
        let (store, hold) = (store.clone(), live.hold.clone());
        let released = match &record {
            None => store.release(hold).await,
            Some(record) => store.release_recording(hold, record.clone()).await,
        };
        if let Some(asked) = asked.take() {
            asked(released.as_ref().map_or(0, |released| released.listeners));
        }
        let error = match released.map(|released| released.standing) {
            Ok(Standing::Held) => return Ok(()),
            // An earlier try may have been the one that released it: nobody can say.
            Ok(Standing::Gone) => return Err(unanswered.map_or(LockError::Lost, LockError::from)),
            Err(error) => error,
        };
        match error.kind() {
            StoreErrorKind::Refused | StoreErrorKind::Conflict => return Err(error.into()),
            _ if Instant::now() >= over => return Err(error.into()),
            StoreErrorKind::Unanswered => unanswered = Some(error),
            StoreErrorKind::Unreachable | StoreErrorKind::Transient => {}
        }
        tokio::time::sleep(backoff).await;
        backoff = (backoff * 2).min(LONGEST_BACKOFF);
    }
}
