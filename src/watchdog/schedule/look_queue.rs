//! The queue of the looks at holds.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::watchdog::live::{LiveHold, RenewalState};
use crate::watchdog::moment::Moment;

/// The most leases that have a row of their own.
const ROWS: usize = 8;

/// Looks at holds, the earliest first.
///
/// Renewals of one lease are planned in the order in which they come due, so each row is in time order, and adding is a push at
/// its end. A look that is not in order, or is at a deadline, is in the heap.
#[derive(Default)]
pub(super) struct LookQueue {
    rows: Vec<LeaseRow>,
    heap: BinaryHeap<Look>,
}

struct LeaseRow {
    lease: Duration,
    looks: VecDeque<Look>,
}

/// A planned look.
pub(super) struct Look {
    pub(super) at: Moment,
    pub(super) live: Arc<LiveHold>,
}

impl LookQueue {
    pub(super) fn push(&mut self, look: Look) {
        let is_renewal = look.at < look.live.deadline().into();
        match is_renewal
            .then(|| self.row(look.live.lease().duration()))
            .flatten()
        {
            Some(row) if row.back().is_none_or(|last| last.at <= look.at) => row.push_back(look),
            _ => self.heap.push(look),
        }
    }

    pub(super) fn first(&self) -> Option<&Look> {
        let rows = self.rows.iter().filter_map(|row| row.looks.front());
        rows.chain(self.heap.peek()).max()
    }

    pub(super) fn pop(&mut self) -> Option<Look> {
        let rows = self.rows.iter_mut();
        let row = rows.filter(|row| !row.looks.is_empty());
        let row = row.max_by(|a, b| a.looks.front().cmp(&b.looks.front()));
        match row {
            Some(row) if row.looks.front() >= self.heap.peek() => row.looks.pop_front(),
            _ => self.heap.pop(),
        }
    }

    pub(super) fn len(&self) -> usize {
        let rows = self.rows.iter().map(|row| row.looks.len());
        rows.sum::<usize>() + self.heap.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Look> {
        let rows = self.rows.iter().flat_map(|row| &row.looks);
        rows.chain(&self.heap)
    }

    /// Drops the looks of holds that stand elsewhere, and the memory that they took.
    pub(super) fn tidy(&mut self) {
        for LeaseRow { looks, .. } in &mut self.rows {
            looks.retain(Look::is_valid);
            looks.shrink_to(2 * looks.len());
        }
        self.rows.retain(|row| !row.looks.is_empty());
        self.heap.retain(Look::is_valid);
        self.heap.shrink_to(2 * self.heap.len());
    }

    fn row(&mut self, lease: Duration) -> Option<&mut VecDeque<Look>> {
        let place = self.rows.iter().position(|row| row.lease == lease);
        let place = match place {
            Some(place) => place,
            None if self.rows.len() < ROWS => {
                let looks = VecDeque::new();
                self.rows.push(LeaseRow { lease, looks });
                self.rows.len() - 1
            }
            // A lease that is not used any more gives its row to another.
            None => {
                let empty = self.rows.iter().position(|row| row.looks.is_empty())?;
                self.rows[empty].lease = lease;
                empty
            }
        };
        Some(&mut self.rows[place].looks)
    }
}

impl Look {
    /// Whether its hold stands in the queue with this time.
    pub(super) fn is_valid(&self) -> bool {
        let (state, at) = self.live.renewal();
        matches!(state, RenewalState::Scheduled | RenewalState::Failed(_)) && at == self.at
    }
}

/// The earliest is the greatest.
impl Ord for Look {
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.cmp(&self.at)
    }
}

impl PartialOrd for Look {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Look {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Look {}
