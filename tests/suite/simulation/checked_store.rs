//! A store under observation: every answer is checked.

use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use tower_distributed_lock::error::StoreError;
use tower_distributed_lock::lock::Hold;
use tower_distributed_lock::store::{
    Attempt, Capabilities, HoldStatus, Inspect, LockStore, LockStoreExt, Outcome, Record, Released,
    Renewal, SeveralOutcome, Wakeups, Want,
};
use tower_distributed_lock::{FencingToken, LockKey};

use super::book::Book;
use super::log::{Log, short};
use super::waits::Waits;

/// A wrapper between the faults and the store.
#[derive(Clone)]
pub(super) struct CheckedStore<S> {
    inner: S,
    log: Arc<Log>,
    book: Arc<Mutex<Book>>,
    waits: Arc<Waits>,
}

impl<S: LockStore + Inspect> CheckedStore<S> {
    pub(super) fn new(inner: S, log: Arc<Log>, waits: Arc<Waits>) -> Self {
        Self {
            inner,
            log,
            waits,
            book: Arc::default(),
        }
    }

    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap()
    }

    pub(super) fn inner(&self) -> &S {
        &self.inner
    }

    fn granted(&self, attempt: &Attempt, token: Option<FencingToken>) {
        let hold = &attempt.hold;
        let tick = self.log.tick();
        self.log
            .note(|| format!("granted {} {:?} {}", hold.key, hold.mode, short(hold.id)));
        let mut book = self.book();
        if !book.carries(hold) {
            self.waits.granted(&mut book, attempt);
        }
        if book.was_withdrawn(hold) {
            let text = format!("{} was granted after it was withdrawn", short(hold.id));
            self.log.violated("L7", text);
        }
        book.grant(hold, attempt.lease, tick);
        let Some(fencing) = attempt.fencing.filter(|_| hold.mode.is_exclusive()) else {
            return;
        };
        match token {
            Some(token) if book.issue(&hold.key, token.value(), fencing.reserve) => {}
            token => {
                let text = format!("{token:?} of {} is not larger than all before", hold.key);
                self.log.violated("S6", text);
            }
        }
    }

    /// Compares an answer about a hold with the book. With `ends`, the hold ends in the book.
    fn stands(&self, what: &str, hold: &Hold, standing: HoldStatus, ends: bool) {
        self.log.note(|| {
            format!(
                "{what} {} {:?} {}: {standing:?}",
                hold.key,
                hold.mode,
                short(hold.id)
            )
        });
        let tick = self.log.tick();
        let mut book = self.book();
        let carried = book.carries(hold);
        if carried != (standing == HoldStatus::Held) {
            let id = short(hold.id);
            let text = format!("{id} is said to be {standing:?} ({what})");
            self.log.violated("S9", text);
        }
        if ends {
            book.end(hold, tick);
        }
    }

    /// Compares the store's record with the records that it has confirmed.
    fn recorded(&self, key: &LockKey, now: Option<&Bytes>, kept: Option<&Bytes>) {
        let mut book = self.book();
        if let Some(value) = now {
            book.record(key, value);
        }
        if kept != book.records_of(key).last() {
            let text = format!("{key} has another record than it says");
            self.log.violated("S10", text);
        }
    }

    /// Compares the whole state of a key.
    async fn compare(&self, key: &LockKey) {
        let seen = self.inner.inspect(key).await.unwrap();
        for (promise, text) in self.book().differences(key, &seen) {
            self.log.violated(promise, text);
        }
    }

    async fn compare_all(&self, attempts: &[Attempt]) {
        for attempt in attempts {
            self.compare(&attempt.hold.key).await;
        }
    }
}

impl<S: LockStore + Inspect> LockStore for CheckedStore<S> {
    async fn acquire(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
        let answer = self.inner.acquire(attempt).await;
        match &answer {
            Ok(Outcome::Granted { token }) => self.granted(attempt, *token),
            refused => {
                self.log.note(|| {
                    let hold = &attempt.hold;
                    format!(
                        "{refused:?} {} {:?} {}",
                        hold.key,
                        hold.mode,
                        short(hold.id)
                    )
                });
                if let Ok(Outcome::Refused { retry_after }) = refused {
                    self.waits.refused(&mut self.book(), attempt, *retry_after);
                }
            }
        }
        self.compare(&attempt.hold.key).await;
        answer
    }

    async fn acquire_several(
        &self,
        attempts: &[Attempt],
        want: Want,
    ) -> Result<SeveralOutcome, StoreError> {
        let answer = self.inner.acquire_several(attempts, want).await;
        if let Ok(SeveralOutcome::Granted(grants)) = &answer {
            for grant in grants {
                self.granted(&attempts[grant.index], grant.token);
            }
        } else if want == Want::All {
            for Attempt { hold, .. } in attempts {
                let left = self.inner.check(std::slice::from_ref(hold)).await.unwrap();
                if left == [HoldStatus::Held] && !self.book().carries(hold) {
                    let text = format!("{} of a refused several is held", hold.key);
                    self.log.violated("S8", text);
                }
            }
        }
        self.compare_all(attempts).await;
        answer
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<HoldStatus>, StoreError> {
        let statuses = self.inner.renew(renewals).await?;
        for (Renewal { hold, lease, .. }, status) in renewals.iter().zip(&statuses) {
            match lease {
                Some(lease) => {
                    self.stands("renewed", hold, *status, false);
                    self.book().renew(hold, *lease);
                }
                None => self.stands("checked", hold, *status, false),
            }
        }
        for renewal in renewals {
            self.compare(&renewal.hold.key).await;
        }
        Ok(statuses)
    }

    async fn release(&self, hold: &Hold, record: Option<&Record>) -> Result<Released, StoreError> {
        let released = self.inner.release(hold, record).await?;
        let what = record.map_or("released", |_| "recorded");
        self.stands(what, hold, released.status, true);
        if let Some(record) = record {
            let kept = self.inner.record(&hold.key).await?;
            let recorded = (released.status == HoldStatus::Held).then_some(&record.value);
            self.recorded(&hold.key, recorded, kept.as_ref());
        }
        self.compare(&hold.key).await;
        Ok(released)
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn record(&self, key: &LockKey) -> Result<Option<Bytes>, StoreError> {
        self.inner.record(key).await
    }

    async fn withdraw(&self, attempt: &Attempt, unanswered: bool) -> Result<(), StoreError> {
        self.inner.withdraw(attempt, unanswered).await?;
        let hold = &attempt.hold;
        self.log
            .note(|| format!("withdrawn {} {:?} {}", hold.key, hold.mode, short(hold.id)));
        let tick = self.log.tick();
        {
            let mut book = self.book();
            book.end(hold, tick);
            if unanswered {
                book.withdraw(hold);
            }
        }
        self.waits.withdrawn(hold);
        self.compare(&hold.key).await;
        Ok(())
    }

    async fn subscribe(&self, attempt: &Attempt) -> Result<Wakeups, StoreError> {
        self.inner.subscribe(attempt).await
    }
}
