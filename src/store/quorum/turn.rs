//! One operation after the other.

use tokio::sync::oneshot;

/// A line of operations for each store.
#[derive(Default)]
pub(super) struct Lines {
    /// The end of each, if an operation ever stood there.
    ends: Box<[Option<oneshot::Receiver<()>>]>,
}

/// A place in the line of operations on one hold in one store. They take effect in the order in which they were lined up:
/// a release never overtakes the acquire that it follows. Dropped, it lets the next one begin.
pub(super) struct Turn {
    before: Option<oneshot::Receiver<()>>,
    _after: oneshot::Sender<()>,
}

impl Lines {
    pub(super) fn new(stores: usize) -> Self {
        Self {
            ends: std::iter::repeat_with(|| None).take(stores).collect(),
        }
    }

    /// The last place in the line of `store`.
    pub(super) fn join(&mut self, store: usize) -> Turn {
        let (after, done) = oneshot::channel();
        Turn {
            before: self.ends[store].replace(done),
            _after: after,
        }
    }
}

impl Turn {
    /// Waits until everything before it is done.
    pub(super) async fn begin(&mut self) {
        if let Some(before) = self.before.take() {
            // Done is done, however it ended.
            let _ = before.await;
        }
    }
}
