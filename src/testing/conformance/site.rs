//! The place that a lock protects.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::LockMode;

/// Counts visits by reading, sleeping and writing, with no protection of its own, and panics when two visits overlap that
/// must not.
#[derive(Debug, Clone, Default)]
pub struct Site {
    inner: Arc<SiteState>,
}

#[derive(Debug, Default)]
struct SiteState {
    writers: AtomicUsize,
    readers: AtomicUsize,
    most_readers: AtomicUsize,
    count: AtomicUsize,
}

impl Site {
    /// Visits the site for `time`, as a holder of the lock in `mode`.
    pub async fn work(&self, mode: LockMode, time: Duration) {
        if mode == LockMode::Read {
            self.read(time).await;
        } else {
            self.write(time).await;
        }
    }

    /// The number of writes.
    pub fn count(&self) -> usize {
        self.inner.count.load(Ordering::SeqCst)
    }

    /// The largest number of readers at the same time.
    pub fn most_readers(&self) -> usize {
        self.inner.most_readers.load(Ordering::SeqCst)
    }

    async fn write(&self, time: Duration) {
        let _here = Presence::new(&self.inner.writers);
        assert_eq!(self.inner.writers.load(Ordering::SeqCst), 1, "two writers");
        assert_eq!(
            self.inner.readers.load(Ordering::SeqCst),
            0,
            "a reader and a writer"
        );
        let count = self.count();
        tokio::time::sleep(time).await;
        self.inner.count.store(count + 1, Ordering::SeqCst);
    }

    async fn read(&self, time: Duration) {
        let _here = Presence::new(&self.inner.readers);
        assert_eq!(
            self.inner.writers.load(Ordering::SeqCst),
            0,
            "a writer and a reader"
        );
        let count = self.count();
        let readers = self.inner.readers.load(Ordering::SeqCst);
        self.inner.most_readers.fetch_max(readers, Ordering::SeqCst);
        tokio::time::sleep(time).await;
        assert_eq!(self.count(), count, "a writer wrote while a reader read");
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
