//! What a lock protects.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tower_distributed_lock::LockMode;

/// Counts visits by reading, sleeping and writing, with no protection of its own, and panics when two visits overlap that
/// must not.
#[derive(Debug, Clone, Default)]
pub struct CriticalSection {
    inner: Arc<SectionState>,
}

#[derive(Debug, Default)]
struct SectionState {
    writers: AtomicUsize,
    /// The holders of locks that others may hold at the same time.
    sharers: AtomicUsize,
    most_holders: AtomicUsize,
    count: AtomicUsize,
}

impl CriticalSection {
    /// Works in the section for `time`, as a holder of the lock in `mode`.
    pub async fn work(&self, mode: LockMode, time: Duration) {
        let state = &*self.inner;
        let limit = match mode {
            LockMode::Read => usize::MAX,
            LockMode::Permit(limit) => limit.get() as usize,
            LockMode::Reentrant | LockMode::Fair | LockMode::Write => 1,
        };
        let [alone, shared] = [&state.writers, &state.sharers];
        let _here = Presence::new(if limit == 1 { alone } else { shared });
        let [writers, sharers] = [alone, shared].map(|n| n.load(Ordering::SeqCst));
        let may_be = writers + sharers <= limit && (limit == 1 || writers == 0);
        assert!(may_be, "{mode:?}: {writers} writers and {sharers} others");
        state
            .most_holders
            .fetch_max(writers + sharers, Ordering::SeqCst);
        let count = self.count();
        tokio::time::sleep(time).await;
        match limit {
            1 => state.count.store(count + 1, Ordering::SeqCst),
            _ => assert_eq!(self.count(), count, "one wrote while others shared"),
        }
    }

    /// The number of writes.
    pub fn count(&self) -> usize {
        self.inner.count.load(Ordering::SeqCst)
    }

    /// The largest number of holders at the same time.
    pub fn most_holders(&self) -> usize {
        self.inner.most_holders.load(Ordering::SeqCst)
    }
}

/// A visit that lasts until this is dropped.
struct Presence<'a>(&'a AtomicUsize);

impl<'a> Presence<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
