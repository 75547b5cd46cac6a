use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::{sync::watch, time::Instant};
use tower_distributed_lock::error::{StoreError, StoreErrorKind};
use tower_distributed_lock::lock::{Hold, HoldId};
use tower_distributed_lock::store::{
    Attempt, Capabilities, HoldStatus, LATENESS, LockStore, Outcome, Record, Released, Renewal,
    Wakeups,
};
use tower_distributed_lock::{LockKey, LockMode};

/// `Reentrant` locks in a table of this process. A clone is another way to the same table.
///
/// The mutex protects the rows. Between calls each row has something that is still needed.
#[derive(Clone, Default)]
pub(crate) struct WorkedStore(Arc<Mutex<HashMap<LockKey, Row>>>);

/// What is known of one key.
#[derive(Default)]
struct Row {
    /// The hold, and when its lease ends.
    held: Option<(HoldId, Instant)>,
    /// The attempts that were withdrawn, and until when a late copy of each is refused.
    withdrawn: HashMap<HoldId, Instant>,
    /// Wakes those who wait.
    freed: watch::Sender<()>,
}

impl WorkedStore {
    /// Does one thing with one row, at one instant. A database does it in one transaction, by its own clock.
    fn with<T>(&self, key: &LockKey, act: impl FnOnce(&mut Row, Instant) -> T) -> T {
        let mut rows = self.0.lock().expect("no holder of the mutex panics");
        let (row, now) = (rows.entry(key.clone()).or_default(), Instant::now());
        row.expire(now);
        let done = act(row, now);
        rows.retain(|_, row| !row.is_unused(now));
        done
    }

    /// The keys of which something is left.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let mut rows = self.0.lock().expect("no holder of the mutex panics");
        rows.retain(|_, row| !row.is_unused(Instant::now()));
        rows.keys().map(LockKey::to_string).collect()
    }
}

impl Row {
    fn expire(&mut self, now: Instant) {
        self.held.take_if(|(_, until)| *until <= now);
        self.withdrawn.retain(|_, until| *until > now);
    }

    fn is_unused(&mut self, now: Instant) -> bool {
        self.expire(now);
        self.held.is_none() && self.withdrawn.is_empty() && self.freed.receiver_count() == 0
    }

    fn holds(&self, hold: &Hold) -> bool {
        self.held.is_some_and(|(id, _)| id == hold.id)
    }

    /// Ends the hold, if there is one.
    fn end(&mut self, hold: &Hold) -> Released {
        if !self.holds(hold) {
            return Released::from(HoldStatus::Gone);
        }
        self.held = None;
        self.freed.send_replace(());
        Released::new(HoldStatus::Held, self.freed.receiver_count())
    }
}

impl LockStore for WorkedStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new([LockMode::Reentrant])
    }

    async fn acquire(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
        let hold = &attempt.hold;
        self.with(&hold.key, |row, now| match row.held {
            _ if row.withdrawn.contains_key(&attempt.hold.id) => {
                let late = "the attempt was withdrawn";
                Err(StoreError::new(StoreErrorKind::Refused, late))
            }
            Some((id, until)) if id != hold.id => Ok(Outcome::Refused {
                retry_after: until - now,
            }),
            // The key is free, or this hold has it and the first answer was lost.
            _ => {
                row.held = Some((hold.id, now + attempt.lease));
                Ok(Outcome::Granted { token: None })
            }
        })
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<HoldStatus>, StoreError> {
        let renew = |Renewal { hold, lease, .. }: &Renewal| {
            self.with(&hold.key, |row, now| match &mut row.held {
                Some((id, until)) if *id == hold.id => {
                    // Without a lease it is a question. A late renewal never shortens a life.
                    *until = lease.map_or(*until, |lease| (*until).max(now + lease));
                    HoldStatus::Held
                }
                _ => HoldStatus::Gone,
            })
        };
        Ok(renewals.iter().map(renew).collect())
    }

    async fn release(&self, hold: &Hold, _: Option<&Record>) -> Result<Released, StoreError> {
        Ok(self.with(&hold.key, |row, _| row.end(hold)))
    }

    async fn withdraw(&self, attempt: &Attempt, unanswered: bool) -> Result<(), StoreError> {
        let hold = &attempt.hold;
        self.with(&hold.key, |row, now| {
            row.end(hold);
            if unanswered {
                row.withdrawn.insert(attempt.hold.id, now + LATENESS);
            }
        });
        Ok(())
    }

    async fn subscribe(&self, attempt: &Attempt) -> Result<Wakeups, StoreError> {
        let signal = self.with(&attempt.hold.key, |row, _| row.freed.subscribe());
        Ok(Wakeups::new(signal, ()))
    }
}
