//! Every hold that is spoken of.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::entry::Entry;
use crate::lock::Hold;

/// The fewest entries that are worth a sweep.
const SWEEP: usize = 256;

/// Holds that are asked for, held, or still being tidied up. One that is neither needed nor used is forgotten; what was
/// never released is swept out when its lease is over.
#[derive(Clone)]
pub(super) struct Ledger {
    stores: usize,
    book: Arc<Mutex<Book>>,
}

struct Book {
    pages: HashMap<Hold, Page>,
    sweep_at: usize,
}

struct Page {
    entry: Arc<Entry>,
    /// How many [`Opened`] there are.
    users: usize,
}

/// An entry in use.
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

    /// The hold that is to be asked for.
    pub(super) fn open(&self, hold: &Hold) -> Opened {
        self.page(hold, Entry::new)
    }

    /// A hold that should be known. If it is not, it was taken elsewhere.
    pub(super) fn reopen(&self, hold: &Hold) -> Opened {
        self.page(hold, Entry::foreign)
    }

    /// The hold, if it is known.
    pub(super) fn find(&self, hold: &Hold) -> Option<Opened> {
        let mut book = self.book();
        let page = book.pages.get_mut(hold)?;
        Some(self.opened(hold, page))
    }

    /// Whether nothing is known of any hold.
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
    /// Removes what is no longer needed. Paid for by the pages added since the last time.
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
