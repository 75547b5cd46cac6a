//! Measures how long this process was paused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::now;

const BEAT: Duration = Duration::from_millis(20);

/// A timer that measures its own delay: a paused process, or one on an overloaded machine, is late without a fault of a
/// lock.
#[derive(Debug, Clone)]
pub(crate) struct Pulse {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    stood: AtomicU64,
    last: AtomicU64,
}

impl Pulse {
    pub(crate) fn start() -> Self {
        let inner = Arc::new(Inner {
            stood: AtomicU64::new(0),
            last: AtomicU64::new(now()),
        });
        let pulse = Self { inner };
        let beating = pulse.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(BEAT).await;
                beating.beat();
            }
        });
        pulse
    }

    /// The total pause since the start, in nanoseconds.
    pub(crate) fn stood(&self) -> u64 {
        let present = now().saturating_sub(self.inner.last.load(Ordering::SeqCst));
        self.inner.stood.load(Ordering::SeqCst) + present.saturating_sub(nanos(2 * BEAT))
    }

    fn beat(&self) {
        let now = now();
        let gap = now - self.inner.last.swap(now, Ordering::SeqCst);
        let missing = gap.saturating_sub(nanos(2 * BEAT));
        self.inner.stood.fetch_add(missing, Ordering::SeqCst);
    }
}

pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
