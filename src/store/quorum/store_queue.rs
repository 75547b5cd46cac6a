//! The order of operations on one hold.

use tokio::sync::oneshot;

/// A queue of operations for each store.
#[derive(Default)]
pub(super) struct StoreQueues {
    /// The end signal of the last operation in each queue, if there ever was one.
    ends: Box<[Option<oneshot::Receiver<()>>]>,
}

/// The place of one operation in the queue of one hold and store. Operations take effect in the order of the queue: a
/// release never overtakes the acquire before it. Dropping the turn starts the next operation.
pub(super) struct QueueTurn {
    before: Option<oneshot::Receiver<()>>,
    _after: oneshot::Sender<()>,
}

impl StoreQueues {
    pub(super) fn new(stores: usize) -> Self {
        Self {
            ends: std::iter::repeat_with(|| None).take(stores).collect(),
        }
    }

    /// Adds a place at the end of the queue of `store`.
    pub(super) fn join(&mut self, store: usize) -> QueueTurn {
        let (after, done) = oneshot::channel();
        QueueTurn {
            before: self.ends[store].replace(done),
            _after: after,
        }
    }
}

impl QueueTurn {
    /// Waits until the previous operation has ended.
    pub(super) async fn begin(&mut self) {
        if let Some(before) = self.before.take() {
            // An error means that the previous turn was dropped, so it has ended.
            let _ = before.await;
        }
    }
}
