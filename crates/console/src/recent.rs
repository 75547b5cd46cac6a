//! Recent losses and refusals.

use std::cmp::Reverse;
use std::collections::VecDeque;

use tower_distributed_lock::client::{LockEvent, LockEventKind};

/// How many losses, and how many refusals, are kept. They are kept separately, so that many refusals do not remove losses.
const KEPT: usize = 128;

/// One of them.
#[derive(Debug)]
pub(crate) struct Noted {
    /// Rises by one with each event.
    pub(crate) number: u64,
    pub(crate) event: LockEvent,
    /// Who has broken the lock, if that was a user of the page.
    pub(crate) caller: Option<String>,
}

/// The latest events, and how many there were.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// Losses and broken locks, the oldest first.
    losses: VecDeque<Noted>,
    refusals: VecDeque<Noted>,
    pub(crate) lost: u64,
    pub(crate) refused: u64,
    pub(crate) broken: u64,
    /// The number of the last one.
    pub(crate) last: u64,
}

impl Recent {
    /// Adds a loss, a break or a refusal.
    pub(crate) fn add(&mut self, event: LockEvent, caller: Option<String>) {
        let (kept, count) = match event.kind {
            LockEventKind::Lost { .. } => (&mut self.losses, &mut self.lost),
            LockEventKind::Broken => (&mut self.losses, &mut self.broken),
            LockEventKind::Refused { .. } => (&mut self.refusals, &mut self.refused),
            _ => return,
        };
        *count += 1;
        self.last += 1;
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(Noted {
            number: self.last,
            event,
            caller,
        });
    }

    /// The latest first.
    pub(crate) fn latest(&self) -> Vec<&Noted> {
        let mut all: Vec<_> = self.losses.iter().chain(&self.refusals).collect();
        all.sort_by_key(|noted| Reverse(noted.number));
        all
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tower_distributed_lock::{LockClient, MemoryStore};

    use super::*;

    #[tokio::test]
    async fn many_refusals_displace_no_loss() {
        let locks = LockClient::new(MemoryStore::new());
        let mut events = locks.events();
        let guard = locks.lock("k").await.unwrap();
        locks.admin().unwrap().force_unlock("k").await.unwrap();
        guard.release().await.unwrap_err();
        let _guard = locks.lock("k").await.unwrap();
        let mut recent = Recent::default();
        for _ in 0..10 * KEPT {
            locks.lock("k").wait(Duration::ZERO).await.unwrap_err();
            recent.add(events.next().await.unwrap(), None);
        }
        assert_eq!((recent.broken, recent.lost), (1, 1));
        assert_eq!(recent.refused, 10 * KEPT as u64 - 2);
        let latest = recent.latest();
        assert_eq!(latest.len(), KEPT + 2);
        assert!(matches!(
            latest[KEPT].event.kind,
            LockEventKind::Lost { .. }
        ));
        assert!(matches!(latest[KEPT + 1].event.kind, LockEventKind::Broken));
    }
}
