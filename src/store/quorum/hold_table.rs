//! The holds that operations refer to.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use tokio::time::Instant;

use super::hold::QuorumHold;
use crate::lock::Hold;
use crate::sync::{Mutex, MutexGuard};

/// The fewest holds that are worth a sweep.
const SWEEP: usize = 256;

/// Holds that are asked for, held, or still being tidied up. One that is neither needed nor referred to is forgotten; what
/// was never released is swept out when its lease is over.
///
/// The mutex protects the rows; the mutex of a hold is taken under it. Between calls, a row has as many `users` as there are
/// [`HoldRef`]s to it.
#[derive(Clone)]
pub(super) struct HoldTable {
    stores: usize,
    table: Arc<Mutex<Table>>,
}

#[derive(Default)]
struct Table {
    rows: HashMap<Hold, TableRow>,
    /// With how many rows the next sweep is worth it.
    sweep_at: usize,
}

struct TableRow {
    hold: Arc<QuorumHold>,
    users: usize,
}

/// A reference to a hold.
pub(super) struct HoldRef {
    name: Hold,
    hold: Arc<QuorumHold>,
    table: HoldTable,
}

impl HoldTable {
    pub(super) fn new(stores: usize) -> Self {
        Self {
            stores,
            table: Arc::default(),
        }
    }

    /// A hold that is to be asked for.
    pub(super) fn open(&self, name: &Hold) -> Arc<HoldRef> {
        self.find_or(name, QuorumHold::new)
    }

    /// A hold that should be known. If it is not, another client took the hold.
    pub(super) fn reopen(&self, name: &Hold) -> Arc<HoldRef> {
        self.find_or(name, QuorumHold::foreign)
    }

    /// The hold, if it is known.
    pub(super) fn find(&self, name: &Hold) -> Option<HoldRef> {
        let mut table = self.table();
        let row = table.rows.get_mut(name)?;
        Some(self.refer(name, row))
    }

    /// Whether no hold is known.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.table().rows.is_empty()
    }

    fn find_or(&self, name: &Hold, make: impl FnOnce(usize) -> QuorumHold) -> Arc<HoldRef> {
        let mut table = self.table();
        if !table.rows.contains_key(name) {
            table.sweep();
        }
        let row = table.rows.entry(name.clone()).or_insert_with(|| TableRow {
            hold: Arc::new(make(self.stores)),
            users: 0,
        });
        Arc::new(self.refer(name, row))
    }

    fn refer(&self, name: &Hold, row: &mut TableRow) -> HoldRef {
        row.users += 1;
        HoldRef {
            name: name.clone(),
            hold: row.hold.clone(),
            table: self.clone(),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }
}

impl Table {
    /// Removes what is no longer needed. Paid for by the rows added since the last time.
    fn sweep(&mut self) {
        if self.rows.len() >= self.sweep_at {
            let now = Instant::now();
            self.rows
                .retain(|_, row| row.users > 0 || row.hold.is_needed(now));
            self.sweep_at = SWEEP.max(2 * self.rows.len());
        }
    }
}

impl Deref for HoldRef {
    type Target = QuorumHold;

    fn deref(&self) -> &QuorumHold {
        &self.hold
    }
}

impl Drop for HoldRef {
    fn drop(&mut self) {
        let mut table = self.table.table();
        let Some(row) = table.rows.get_mut(&self.name) else {
            return;
        };
        row.users -= 1;
        if row.users == 0 && !row.hold.is_needed(Instant::now()) {
            table.rows.remove(&self.name);
        }
    }
}
