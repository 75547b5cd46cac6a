//! Releases, repeated until the store answers.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Background;
use crate::backoff::Backoff;
use crate::cleanup;
use crate::error::{LockError, StoreError, StoreErrorKind};
use crate::store::{BATCH, DynStore, HoldStatus, Record, Release, Released, undecided};
use crate::watchdog::{LiveHold, Phase};

/// The pause between two tries of a release that the store refuses.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// A hold whose last share has ended, and what waits for its end in the store. It is dropped at the end.
pub(crate) trait EndOfHold: Unpin + Send + 'static {
    fn live(&self) -> &Arc<LiveHold>;

    /// That of its client.
    fn background(&self) -> &Background;

    /// The store has given its first answer, which may be an error.
    fn asked(&mut self, released: Released);
}

impl Background {
    /// Releases `live` in the store when its minimum ends. A shutdown does not wait for that; a process that ends before
    /// leaves it to the lease.
    pub(super) fn release_at(&self, live: &LiveHold, until: Instant) {
        let (store, hold) = (self.store(), live.hold.clone());
        self.handle.tasks.later(until, async move {
            if let Err(error) = store.release_alone(Release::new(hold)).await {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, "could not release a kept hold: its lease ends it");
            }
        });
    }

    /// The release of `live` has ended.
    pub(super) fn released(&self, live: &Arc<LiveHold>, result: &Result<(), LockError>) {
        if was_refused(result) {
            self.adopt(Box::pin(retry_refused(self.store(), live.clone())));
        }
        self.finish(live, result);
    }

    fn finish(&self, live: &Arc<LiveHold>, result: &Result<(), LockError>) {
        if matches!(result, Err(LockError::Lost)) && live.found_gone() {
            let reason = "the store did not carry it at its release";
            self.handle.watchdog.report_loss(live, reason);
        }
        live.finish(match result {
            Ok(()) => Phase::Released,
            Err(_) => Phase::Lost,
        });
    }
}

/// The end of a hold whose release has begun. If it is dropped before the release has ended, with its runtime or by a panic, it
/// ends the hold with an unknown result, so that no task waits for its end.
pub(super) struct Finishing<E: EndOfHold>(pub(super) E);

impl<E: EndOfHold> Drop for Finishing<E> {
    fn drop(&mut self) {
        self.0.live().finish(Phase::Lost);
    }
}

/// The end of a hold that the store keeps until the end of its minimum. Nothing waits for it. As [`Finishing`], it ends the hold
/// with an unknown result if it is dropped early.
pub(super) struct KeptHold {
    background: Background,
    live: Arc<LiveHold>,
}

impl KeptHold {
    pub(super) fn of(end: &impl EndOfHold) -> Self {
        Self {
            background: end.background().clone(),
            live: end.live().clone(),
        }
    }
}

impl Drop for KeptHold {
    fn drop(&mut self) {
        self.live.finish(Phase::Lost);
    }
}

/// Ends a hold that the store keeps. Returns whether the store carries it.
///
/// In the background no caller wants the answer, and the store is not asked.
pub(super) async fn leave(kept: KeptHold) -> Result<(), LockError> {
    let KeptHold { background, live } = &kept;
    let result = match cleanup::is_in_background() {
        true => Ok(()),
        false => held(background.ask_about(live).await),
    };
    background.finish(live, &result);
    result
}

/// Whether the store has answered that it carries a hold.
pub(super) fn held(status: Result<HoldStatus, StoreError>) -> Result<(), LockError> {
    match status? {
        HoldStatus::Held => Ok(()),
        HoldStatus::Gone => Err(LockError::Lost),
        HoldStatus::Unknown => Err(undecided().into()),
    }
}

/// Asks until the release is decided, with pauses between. `tries` has the answers before.
pub(super) async fn release(
    store: Arc<dyn DynStore>,
    live: &LiveHold,
    record: Option<&Record>,
    mut tries: Tries,
    mut backoff: Backoff,
) -> Result<(), LockError> {
    loop {
        let release = Release::new(live.hold.clone()).record(record.cloned());
        let released = store.release_alone(release).await;
        if let Some(result) = tries.decided(live, released) {
            return result;
        }
        backoff.pause().await;
    }
}

/// Releases many holds of one partition. Each question names up to [`BATCH`] holds. Calls `asked` for each hold, with its
/// index in `lives`, after the store's first answer about it, and `ended` as soon as its result is known.
pub(super) async fn release_together(
    store: Arc<dyn DynStore>,
    lives: &[Arc<LiveHold>],
    mut asked: impl FnMut(usize, Released) + Send,
    ended: impl Fn(&Arc<LiveHold>, &Result<(), LockError>) + Send,
) -> Vec<Result<(), LockError>> {
    let mut tries: Vec<_> = lives.iter().map(|_| Tries::default()).collect();
    let mut results: Vec<_> = lives.iter().map(|_| None).collect();
    let mut open: Vec<_> = (0..lives.len()).collect();
    let mut backoff = Backoff::STORE;
    let mut is_first = true;
    loop {
        for batch in open.chunks(BATCH) {
            let releases = batch.iter();
            let releases = releases.map(|place| Release::new(lives[*place].hold.clone()));
            let answer = store.clone().release(releases.collect()).await;
            for (index, place) in batch.iter().enumerate() {
                let released = answer.as_ref().map(|released| released[index]);
                let released = released.map_err(Clone::clone);
                if is_first {
                    asked(*place, answered(&released));
                }
                let result = tries[*place].decided(&lives[*place], released);
                results[*place] = result.inspect(|result| ended(&lives[*place], result));
            }
        }
        open.retain(|place| results[*place].is_none());
        if open.is_empty() {
            return results.into_iter().flatten().collect();
        }
        is_first = false;
        backoff.pause().await;
    }
}

/// The state of the release of one hold, which may be repeated.
#[derive(Default)]
pub(super) struct Tries {
    /// When its lease is over, by the answer to the first try. `None` before that.
    over: Option<Instant>,
    /// The store may have released it without an answer.
    unanswered: Option<StoreError>,
}

impl Tries {
    /// The result from the store's answer; `None` if the release must be repeated.
    pub(super) fn decided(
        &mut self,
        live: &LiveHold,
        released: Result<Released, StoreError>,
    ) -> Option<Result<(), LockError>> {
        let error = match released.map(|released| released.status) {
            Ok(HoldStatus::Held) => return Some(Ok(())),
            Ok(HoldStatus::Gone) => {
                // An earlier attempt may have released it.
                let why = self.unanswered.take();
                return Some(Err(why.map_or(LockError::Lost, LockError::from)));
            }
            Ok(HoldStatus::Unknown) => undecided(),
            Err(error) => error,
        };
        let now = Instant::now();
        let over = *self.over.get_or_insert_with(|| now + live.longest_rest());
        match error.kind() {
            StoreErrorKind::Refused | StoreErrorKind::Conflict => Some(Err(error.into())),
            // The hold is released, and a repeat would not find it.
            StoreErrorKind::Unacknowledged => Some(Err(error.into())),
            _ if now >= over => Some(Err(error.into())),
            StoreErrorKind::Unanswered => {
                self.unanswered = Some(error);
                None
            }
            StoreErrorKind::Unreachable | StoreErrorKind::Transient => None,
        }
    }
}

/// The information about other processes in an answer.
pub(super) fn answered(released: &Result<Released, StoreError>) -> Released {
    let released = released.as_ref().copied();
    released.unwrap_or_else(|_| HoldStatus::Unknown.into())
}

/// Repeats a refused release until the lease is over, because the cause may end: rights and passwords may be restored.
async fn retry_refused(store: Arc<dyn DynStore>, live: Arc<LiveHold>) {
    let over = Instant::now() + live.longest_rest();
    while Instant::now() < over {
        tokio::time::sleep(REFUSED_PAUSE).await;
        let tries = Tries::default();
        let released = release(store.clone(), &live, None, tries, Backoff::STORE).await;
        if !was_refused(&released) {
            return;
        }
    }
}

fn was_refused(released: &Result<(), LockError>) -> bool {
    matches!(released, Err(LockError::Unavailable(error)) if error.kind() == StoreErrorKind::Refused)
}
