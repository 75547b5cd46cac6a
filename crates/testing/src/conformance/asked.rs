//! A store of any type, so that a case is compiled once.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tower_distributed_lock::LockKey;
use tower_distributed_lock::error::StoreError;
use tower_distributed_lock::lock::Hold;
use tower_distributed_lock::store::{
    Attempt, Capabilities, HoldStatus, LockStore, Outcome, Record, Released, Renewal,
    SeveralOutcome, Unsupported, Wakeups, Want,
};

type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// The methods of [`LockStore`], each with its answer in a box.
pub(super) trait Asked: Send + Sync {
    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> Answer<'a, Outcome>;
    fn acquire_several<'a>(
        &'a self,
        attempts: &'a [Attempt],
        want: Want,
    ) -> Answer<'a, SeveralOutcome>;
    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Answer<'a, Vec<HoldStatus>>;
    fn release<'a>(&'a self, hold: &'a Hold, record: Option<&'a Record>) -> Answer<'a, Released>;
    fn record<'a>(&'a self, key: &'a LockKey) -> Answer<'a, Option<Bytes>>;
    fn withdraw<'a>(&'a self, attempt: &'a Attempt, unanswered: bool) -> Answer<'a, ()>;
    fn subscribe<'a>(&'a self, attempt: &'a Attempt) -> Answer<'a, Wakeups>;
    fn capabilities(&self) -> Capabilities;
    fn partition(&self, key: &LockKey) -> Result<u16, Unsupported>;
}

impl<S: LockStore> Asked for S {
    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> Answer<'a, Outcome> {
        Box::pin(LockStore::acquire(self, attempt))
    }

    fn acquire_several<'a>(
        &'a self,
        attempts: &'a [Attempt],
        want: Want,
    ) -> Answer<'a, SeveralOutcome> {
        Box::pin(LockStore::acquire_several(self, attempts, want))
    }

    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Answer<'a, Vec<HoldStatus>> {
        Box::pin(LockStore::renew(self, renewals))
    }

    fn release<'a>(&'a self, hold: &'a Hold, record: Option<&'a Record>) -> Answer<'a, Released> {
        Box::pin(LockStore::release(self, hold, record))
    }

    fn record<'a>(&'a self, key: &'a LockKey) -> Answer<'a, Option<Bytes>> {
        Box::pin(LockStore::record(self, key))
    }

    fn withdraw<'a>(&'a self, attempt: &'a Attempt, unanswered: bool) -> Answer<'a, ()> {
        Box::pin(LockStore::withdraw(self, attempt, unanswered))
    }

    fn subscribe<'a>(&'a self, attempt: &'a Attempt) -> Answer<'a, Wakeups> {
        Box::pin(LockStore::subscribe(self, attempt))
    }

    fn capabilities(&self) -> Capabilities {
        LockStore::capabilities(self)
    }

    fn partition(&self, key: &LockKey) -> Result<u16, Unsupported> {
        LockStore::partition(self, key)
    }
}
