//! Releases, driven to an answer.

use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;
use tokio::time::Instant;

use super::live::{LiveHold, Phase};
use super::{FIRST_BACKOFF, Keeper, undecided};
use crate::error::{LockError, StoreErrorKind};
use crate::store::{DynStore, HoldStatus, Record, Release};
use crate::telemetry;

/// The longest pause between two tries to release.
const LONGEST_BACKOFF: Duration = Duration::from_secs(1);

impl Keeper {
    /// Releases in the store, trying again until it answers or the lease is over anyway.
    ///
    /// To be called after [`Keeper::begin_release`].
    ///
    /// # Errors
    ///
    /// `Lost` if the store did not carry the hold any more; `Unavailable` if that is unknown, at once if the store refused:
    /// what it refused is tried again in the background.
    pub(crate) async fn release(
        self,
        live: Arc<LiveHold>,
        record: Option<Record>,
        asked: impl FnOnce(usize) + Send,
    ) -> Result<(), LockError> {
        // A release that is dropped was dropped with the runtime that drove it, or has panicked: it does not go on, and
        // no one shall wait for its end.
        let cut_off = CutOff(live.clone());
        let result = release(self.store(), &live, record, asked).await;
        if was_refused(&result) {
            self.adopt(Box::pin(insist(self.store(), live.clone())));
        }
        if matches!(result, Err(LockError::Lost)) && !live.has_ended() {
            let reason = "the store did not carry it at its release";
            telemetry::lost(&live.route, &live.hold, reason);
        }
        live.finish(match result {
            Ok(()) => Phase::Released,
            Err(_) => Phase::Lost,
        });
        drop(cut_off);
        result
    }
}

/// A release under way. Dropped before the end, it ends the hold as one whose fate is unknown.
struct CutOff(Arc<LiveHold>);

impl Drop for CutOff {
    fn drop(&mut self) {
        self.0.finish(Phase::Lost);
    }
}

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
        let release = Release::new(live.hold.clone()).record(record.clone());
        let released = store.clone().release(smallvec![release]).await;
        let released = released.map(|released| released[0]);
        if let Some(asked) = asked.take() {
            asked(released.as_ref().map_or(0, |released| released.notified));
        }
        let error = match released.map(|released| released.status) {
            Ok(HoldStatus::Held) => return Ok(()),
            // An earlier try may have been the one that released it.
            Ok(HoldStatus::Gone) => return Err(unanswered.map_or(LockError::Lost, LockError::from)),
            Ok(HoldStatus::Unknown) => undecided(),
            Err(error) => error,
        };
        match error.kind() {
            StoreErrorKind::Refused | StoreErrorKind::Conflict => return Err(error.into()),
            // It is released, and asking again would not find it.
            StoreErrorKind::Unacknowledged => return Err(error.into()),
            _ if Instant::now() >= over => return Err(error.into()),
            StoreErrorKind::Unanswered => unanswered = Some(error),
            StoreErrorKind::Unreachable | StoreErrorKind::Transient => {}
        }
        tokio::time::sleep(backoff).await;
        backoff = (backoff * 2).min(LONGEST_BACKOFF);
    }
}

/// Goes on after a refusal, which may be over before the lease is: rights are given back, as are passwords.
async fn insist(store: Arc<dyn DynStore>, live: Arc<LiveHold>) {
    let over = Instant::now() + live.lease.duration();
    while Instant::now() < over {
        tokio::time::sleep(LONGEST_BACKOFF).await;
        if !was_refused(&release(store.clone(), &live, None, |_| ()).await) {
            return;
        }
    }
}

fn was_refused(released: &Result<(), LockError>) -> bool {
    matches!(released, Err(LockError::Unavailable(error)) if error.kind() == StoreErrorKind::Refused)
}
