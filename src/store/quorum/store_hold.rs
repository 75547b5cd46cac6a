//! One hold in one store.

use std::future::Future;
use std::sync::Arc;

use tokio::task::JoinHandle;

use super::QuorumStore;
use super::hold_table::HoldRef;
use super::members::Members;
use crate::store::LockStore;

/// One hold in one store of the quorum: what an operation needs to act there.
pub(super) struct StoreHold<S> {
    pub(super) quorum: QuorumStore<S>,
    pub(super) hold: Arc<HoldRef>,
    /// The number of the store.
    pub(super) at: usize,
}

impl<S> StoreHold<S> {
    pub(super) fn store(&self) -> &S {
        &self.quorum.shared.stores[self.at]
    }
}

impl<S: LockStore> QuorumStore<S> {
    /// Does something about a hold in each of `stores`, to its end, in the background. In each store, operations on one hold
    /// take effect in the order of these calls: a release never overtakes the acquire before it.
    pub(super) fn in_turn<F>(
        &self,
        hold: &Arc<HoldRef>,
        stores: Members,
        work: impl Fn(StoreHold<S>) -> F,
    ) -> Vec<JoinHandle<()>>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let tasks = stores.iter().map(|at| {
            let (before, ended) = hold.turn(at);
            let work = work(StoreHold {
                quorum: self.clone(),
                hold: hold.clone(),
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
