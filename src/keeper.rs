//! The keeper: what a client does in the background.
//!
//! It renews holds in batches at a third of their lease and says when one is lost ([`Renewals`]); it answers owner checks
//! and drives to its end whatever a dropped future or guard has left behind ([`Errands`]). Each is one task, with no
//! timer and no task per hold; each goes on on another runtime that takes locks when its own ends. Errands run where
//! their callers do. Renewals run on a runtime of the store's own if it has one, so that holds outlive a runtime whose
//! workers are all busy.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime;

use crate::error::{LockError, StoreError, StoreErrorKind};
use crate::store::{BATCH, DynStore, HoldStatus};

mod calendar;
mod checks;
mod driven;
mod errands;
mod live;
mod outage;
mod release;
mod renewals;
mod task;

pub(crate) use driven::{Driven, Job};
use errands::Errands;
pub(crate) use live::{LiveHold, Phase};
use renewals::{OnLost, Renewals};

/// The pause after a release or a check failed, before the next try; it doubles.
const FIRST_BACKOFF: Duration = Duration::from_millis(20);

/// A handle on the tasks. They end when the last handle is gone and their work is done.
#[derive(Clone)]
pub(crate) struct Keeper {
    handle: Arc<Handle>,
}

struct Handle {
    store: Arc<dyn DynStore>,
    renewals: Arc<Renewals>,
    errands: Arc<Errands>,
}

impl Keeper {
    /// `on_lost` is told of every hold that is lost. Holds are renewed on `runtime`, or else where the store says.
    pub(crate) fn new(
        store: Arc<dyn DynStore>,
        runtime: Option<runtime::Handle>,
        on_lost: OnLost,
    ) -> Self {
        Self {
            handle: Arc::new(Handle {
                renewals: Renewals::new(store.clone(), runtime, on_lost),
                errands: Errands::new(store.clone()),
                store,
            }),
        }
    }

    pub(crate) fn store(&self) -> Arc<dyn DynStore> {
        self.handle.store.clone()
    }

    /// Renews `live` until it is forgotten, and says when it is lost.
    pub(crate) fn keep(&self, live: &Arc<LiveHold>) {
        let here = runtime::Handle::try_current().ok();
        self.handle.renewals.begin(live, here.as_ref());
        // Whoever drops the hold may be outside of every runtime.
        self.handle.errands.begin(here.as_ref());
    }

    /// Ends renewal for a release that is about to be sent; false if the hold is lost already.
    pub(crate) fn begin_release(&self, live: &LiveHold) -> bool {
        self.handle.renewals.end(live)
    }

    /// Asks the store whether it carries the hold now. Everybody who asks at about the same time shares one question.
    pub(crate) async fn check(&self, live: &Arc<LiveHold>) -> Result<(), LockError> {
        match self.handle.errands.check(live).await {
            Ok(HoldStatus::Held) => Ok(()),
            Ok(HoldStatus::Gone) => match live.phase() {
                // It went on after us and its release overtook the question: that release speaks for us too.
                Phase::Released => Ok(()),
                Phase::Releasing if live.ended().await == Phase::Released => Ok(()),
                _ => {
                    let renewals = &self.handle.renewals;
                    renewals.lose(live, "the store does not carry it any more");
                    Err(LockError::Lost)
                }
            },
            Ok(HoldStatus::Unknown) => Err(undecided().into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Drives `job` to its end in the background. Never blocks; works outside a runtime.
    pub(crate) fn adopt(&self, job: Job) {
        self.handle.errands.adopt(job);
    }

    /// Gives up every live hold: it is lost to those who share it, and released in the store.
    pub(crate) fn abandon_all(&self) {
        let renewals = &self.handle.renewals;
        for live in renewals.all() {
            renewals.lose(&live, "the client was shut down");
            let store = self.store();
            self.adopt(Box::pin(async move {
                let _ = release::release(store, &live, None, |_| ()).await;
            }));
        }
    }

    /// Waits until every adopted job is done.
    pub(crate) async fn drained(&self) {
        self.handle.errands.drained().await;
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.renewals.retire();
        self.errands.retire();
    }
}

/// The store answered, but could not say whether it carries a hold.
fn undecided() -> StoreError {
    StoreError::new(
        StoreErrorKind::Unanswered,
        "the store cannot say whether it carries the hold",
    )
}

fn in_batches<T>(items: Vec<T>) -> Vec<Vec<T>> {
    let mut items = items.into_iter();
    let mut batches = Vec::new();
    loop {
        let batch: Vec<T> = items.by_ref().take(BATCH).collect();
        if batch.is_empty() {
            return batches;
        }
        batches.push(batch);
    }
}
