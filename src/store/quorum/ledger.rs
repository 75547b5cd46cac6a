//! Every hold that an operation refers to.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::entry::Entry;
use crate::lock::Hold;

/// The fewest entries that cause a sweep.
const SWEEP: usize = 256;

/// Holds that are asked for, held, or being cleaned up. An entry that is neither needed nor used is removed. A sweep
/// removes holds that were never released, after their lease.
#[derive(Clone)]
pub(super) struct Ledger {
    stores: usize,
    book: Arc<Mutex<Book>>,
}

/// Protected by one mutex. The mutex of an [`Entry`] may be taken under it, never the other way round. Between calls, a page has
/// users or was needed when it lost its last user.
struct Book {
    pages: HashMap<Hold, Page>,
    sweep_at: usize,
}

struct Page {
    entry: Arc<Entry>,
    /// The number of [`Opened`] handles.
    users: usize,
}

/// A handle of an entry. Dropping the last one removes the entry, unless it is still needed.
pub(super) struct Opened {
    hold: Hold,
    entry: Arc<Entry>,
    ledger: Ledger,
}

impl Ledger {
    pub(super) fn new(stores: usize) -> Self {
        Self {
            stores,
            book: Arc::new(Mutex::new(Book {
                pages: HashMap::new(),
                sweep_at: SWEEP,
            })),
        }
    }

    /// Opens the entry of a hold that is to be asked for.
    pub(super) fn open(&self, hold: &Hold) -> Opened {
        self.page(hold, Entry::new)
    }

    /// Opens the entry of a hold that should be known. If it is not, another client took the hold.
    pub(super) fn reopen(&self, hold: &Hold) -> Opened {
        self.page(hold, Entry::foreign)
    }

    /// Opens the entry of the hold, if there is one.
    pub(super) fn find(&self, hold: &Hold) -> Option<Opened> {
        let mut book = self.book();
        let page = book.pages.get_mut(hold)?;
        Some(self.opened(hold, page))
    }

    /// Whether there is no entry.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.book().pages.is_empty()
    }

    fn page(&self, hold: &Hold, make: impl FnOnce(usize) -> Entry) -> Opened {
        let mut book = self.book();
        if !book.pages.contains_key(hold) {
            book.sweep();
        }
        let page = book.pages.entry(hold.clone()).or_insert_with(|| Page {
            entry: Arc::new(make(self.stores)),
            users: 0,
        });
        self.opened(hold, page)
    }

    fn opened(&self, hold: &Hold, page: &mut Page) -> Opened {
        page.users += 1;
        Opened {
            hold: hold.clone(),
            entry: page.entry.clone(),
            ledger: self.clone(),
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    /// Removes pages that are neither used nor needed. It runs when their number has doubled, so each new page pays a
    /// constant share.
    fn sweep(&mut self) {
        if self.pages.len() < self.sweep_at {
            return;
        }
        let now = Instant::now();
        self.pages
            .retain(|_, page| page.users > 0 || page.entry.is_needed(now));
        self.sweep_at = SWEEP.max(2 * self.pages.len());
    }
}

impl Deref for Opened {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        &self.entry
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let mut book = self.ledger.book();
        let Some(page) = book.pages.get_mut(&self.hold) else {
            return;
        };
        page.users -= 1;
        if page.users == 0 && !page.entry.is_needed(Instant::now()) {
            book.pages.remove(&self.hold);
        }
    }
}
