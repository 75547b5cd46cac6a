//! A store that yields before and after each step.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use shuttle::future::yield_now;

use crate::error::StoreError;
use crate::lock::{Hold, HoldId, LockMode};
use crate::store::memory::MemoryStore;
use crate::store::{
    Attempt, Capabilities, HoldStatus, LockStore, LockStoreExt, Outcome, Record, Released, Renewal,
    Wakeups,
};

/// [`MemoryStore`] with yields to other tasks before and after each step, and a record of grants and releases.
#[derive(Clone, Default)]
pub(super) struct Paced {
    pub(super) store: MemoryStore,
    book: Arc<Mutex<HashMap<(HoldId, LockMode), Page>>>,
    asked: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Page {
    granted: usize,
    ended: usize,
}

impl Paced {
    /// The number of questions for a hold so far.
    pub(super) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Asserts that every granted hold was released once.
    pub(super) fn balances(&self) {
        for (name, page) in &*self.book.lock().unwrap() {
            assert_eq!(page.granted, page.ended, "{name:?}: {page:?}");
        }
    }

    /// Ends a hold without its holder.
    pub(super) async fn steal(&self, hold: &Hold) {
        let stolen = self.store.release(hold, None).await.unwrap();
        if stolen.status == HoldStatus::Held {
            self.page(hold, |page| page.ended += 1);
        }
    }

    /// Ends every hold on `key`.
    pub(super) async fn steal_all(&self, key: &str) {
        let granted: Vec<_> = self.book.lock().unwrap().keys().copied().collect();
        for (id, mode) in granted {
            let key = key.into();
            self.steal(&Hold { key, mode, id }).await;
        }
    }

    /// Whether the store carries the hold at this moment.
    pub(super) async fn carries(&self, hold: &Hold) -> bool {
        let standings = self.store.check(std::slice::from_ref(hold)).await;
        standings.unwrap()[0] == HoldStatus::Held
    }

    fn page(&self, hold: &Hold, write: impl FnOnce(&mut Page)) {
        let mut book = self.book.lock().unwrap();
        write(book.entry((hold.id, hold.mode)).or_default());
    }
}

impl LockStore for Paced {
    async fn acquire(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        yield_now().await;
        let again = self.carries(&attempt.hold).await;
        let outcome = self.store.acquire(attempt).await?;
        if matches!(outcome, Outcome::Granted { .. }) && !again {
            self.page(&attempt.hold, |page| page.granted += 1);
        }
        yield_now().await;
        Ok(outcome)
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<HoldStatus>, StoreError> {
        yield_now().await;
        let renewed = self.store.renew(renewals).await;
        yield_now().await;
        renewed
    }

    async fn release(&self, hold: &Hold, record: Option<&Record>) -> Result<Released, StoreError> {
        yield_now().await;
        let mut released = self.store.release(hold, record).await?;
        if released.status == HoldStatus::Held {
            self.page(hold, |page| page.ended += 1);
        }
        // Yielding to other processes depends on time, which does not pass here.
        released.notified = 0;
        yield_now().await;
        Ok(released)
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn withdraw(&self, attempt: &Attempt, unanswered: bool) -> Result<(), StoreError> {
        yield_now().await;
        if self.carries(&attempt.hold).await {
            self.page(&attempt.hold, |page| page.ended += 1);
        }
        self.store.withdraw(attempt, unanswered).await?;
        yield_now().await;
        Ok(())
    }

    async fn subscribe(&self, attempt: &Attempt) -> Result<Wakeups, StoreError> {
        yield_now().await;
        let wakeups = self.store.subscribe(attempt).await;
        yield_now().await;
        wakeups
    }
}
