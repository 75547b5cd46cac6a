//! One hold in one store.

use std::future::Future;

use tokio::task::JoinHandle;

use super::QuorumStore;
use super::hold::{HoldRow, QuorumHold};
use super::members::Members;
use crate::lock::Hold;
use crate::store::{Attempt, LockStore};
use crate::sync::Mutex;

/// An attempt, and the state of its hold in all stores.
#[derive(Clone)]
pub(super) struct AttemptedHold {
    pub(super) attempt: Attempt,
    pub(super) hold: HoldRow,
}

/// One hold in one store of the quorum: what an operation needs to act there.
pub(super) struct StoreHold<S> {
    pub(super) quorum: QuorumStore<S>,
    pub(super) of: AttemptedHold,
    /// The number of the store.
    pub(super) at: usize,
}

impl<S> StoreHold<S> {
    pub(super) fn store(&self) -> &S {
        &self.quorum.shared.stores[self.at]
    }
}

impl<S: LockStore> QuorumStore<S> {
    /// A hold that should be known. If it is not, another client took it.
    pub(super) fn known(&self, name: &Hold) -> HoldRow {
        let foreign = || Mutex::new(QuorumHold::foreign(self.count()));
        self.shared.holds.find_or(name, foreign)
    }

    /// An attempt whose hold is to end.
    pub(super) fn given_up(&self, attempt: Attempt) -> AttemptedHold {
        let hold = self.known(&attempt.hold);
        AttemptedHold { attempt, hold }
    }

    /// Does something about a hold in each of `stores`, to its end, in the background. In each store, operations on one hold
    /// take effect in the order of these calls: a release never overtakes the acquire before it.
    pub(super) fn in_order<F>(
        &self,
        of: &AttemptedHold,
        stores: Members,
        work: impl Fn(StoreHold<S>) -> F,
    ) -> Vec<JoinHandle<()>>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let tasks = stores.iter().map(|at| {
            let (before, ended) = of.hold.lock().queue_after_last(at);
            let work = work(StoreHold {
                quorum: self.clone(),
                of: of.clone(),
                at,
            });
            self.shared.running.spawn(async move {
                if let Some(before) = before {
                    // An error means that the operation before was dropped, so it has ended.
                    let _ = before.await;
                }
                work.await;
                drop(ended);
            })
        });
        tasks.collect()
    }
}
