//! The operations of the store.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use redis::Value;

use super::link::Purpose;
use super::link::wire::Wire;
use super::operate::audit;
use super::protocol::channels::Channels;
use super::protocol::script::Call;
use super::protocol::{calls, many, reply};
use super::servers::Router;
use super::{RedisStore, StoreInner};
use crate::audit::Audit;
use crate::error::{StoreError, StoreErrorKind};
use crate::lock::{Hold, LockKey};
use crate::store::{
    Attempt, BATCH, Capabilities, HoldStatus, LockStore, Outcome, Record, Released, Renewal,
    SeveralOutcome, Unsupported, Wakeups, Want, check_record, several,
};

impl LockStore for RedisStore {
    async fn acquire(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
        let call = |publish| calls::acquire(attempt, publish);
        let (answer, sent) = self.call_counting(&attempt.hold.key, call).await?;
        let outcome = reply::outcome(&answer)?;
        if attempt.is_woken_in_turn() {
            let StoreInner {
                outside, router, ..
            } = &*self.inner;
            match reply::names_redissons_channel(&answer) {
                true => outside.follow(router, attempt),
                false => outside.forget(attempt.hold.id),
            }
        }
        if let Outcome::Granted { .. } = outcome {
            self.grant(std::slice::from_ref(attempt), &sent).await?;
        }
        Ok(outcome)
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<HoldStatus>, StoreError> {
        self.renew_or_check(renewals).await
    }

    async fn release(&self, hold: &Hold, record: Option<&Record>) -> Result<Released, StoreError> {
        check_record(hold, record)?;
        let call = |publish| match record {
            None => calls::release(hold, publish),
            Some(record) => calls::release_recording(hold, record, publish),
        };
        let (answer, sent) = self.call_counting(&hold.key, call).await?;
        let released = reply::released(&answer)?.in_line(true);
        if released.status == HoldStatus::Held {
            // It is confirmed when enough replicas have acknowledged it.
            sent.acknowledged().await?;
        }
        Ok(released)
    }

    async fn acquire_several(
        &self,
        attempts: &[Attempt],
        want: Want,
    ) -> Result<SeveralOutcome, StoreError> {
        if !self.takes_at_once(attempts) {
            return several::one_by_one(self, attempts, want).await;
        }
        let call = |publish| many::acquire(attempts, want, publish);
        let (answer, sent) = self.call_counting(&attempts[0].hold.key, call).await?;
        let outcome = many::outcome(&answer, attempts, want)?;
        if let SeveralOutcome::Granted(grants) = &outcome {
            let granted = grants.iter().map(|grant| attempts[grant.index].clone());
            self.grant(&granted.collect::<Vec<_>>(), &sent).await?;
        }
        Ok(outcome)
    }

    async fn audit(&self) -> Result<Audit, StoreError> {
        match &*self.inner.router {
            Router::One(node) => audit::look_at(node, &self.inner).await,
            Router::Cluster(cluster) => {
                Ok(audit::look_at_all(&cluster.servers().await?, &self.inner).await)
            }
        }
    }

    fn capabilities(&self) -> Capabilities {
        let inner = self.inner.clone();
        let capabilities = Capabilities::all()
            .database("redis")
            .operation("EVALSHA")
            .renewal_runtime(move || inner.background.runtime())
            .inspect(self.clone());
        match self.inner.router.server() {
            Some((address, port)) => capabilities.server(address, port),
            None => capabilities,
        }
    }

    async fn record(&self, key: &LockKey) -> Result<Option<Bytes>, StoreError> {
        self.inner.recording.store(true, Ordering::Relaxed);
        let call = |_| calls::record(key, self.inner.acknowledging);
        let (answer, sent) = self.call_counting(key, call).await?;
        let record: Option<Bytes> = reply::read(answer)?;
        if record.is_some() {
            // A former master may have it alone.
            sent.acknowledged().await?;
        }
        Ok(record)
    }

    fn partition(&self, key: &LockKey) -> Result<u16, Unsupported> {
        self.inner.router.partition(key)
    }

    async fn withdraw(&self, attempt: &Attempt, unanswered: bool) -> Result<(), StoreError> {
        self.inner.outside.forget(attempt.hold.id);
        let call = |publish| calls::withdraw(attempt, unanswered, publish);
        reply::released(&self.call(&attempt.hold.key, call).await?).map(drop)
    }

    async fn subscribe(&self, attempt: &Attempt) -> Result<Wakeups, StoreError> {
        let channel = calls::channel(attempt);
        let router = &self.inner.router;
        router.listen(&attempt.hold.key, channel).await
    }
}

impl RedisStore {
    pub(super) async fn call(
        &self,
        key: &LockKey,
        call: impl Fn(Channels) -> Call,
    ) -> Result<Value, StoreError> {
        Ok(self.call_counting(key, call).await?.0)
    }

    /// Calls a script whose effect counts when enough replicas have acknowledged it on the connection that this returns.
    pub(super) async fn call_counting(
        &self,
        key: &LockKey,
        call: impl Fn(Channels) -> Call,
    ) -> Result<(Value, Arc<Wire>), StoreError> {
        let router = &self.inner.router;
        router.call(Purpose::Commands, key, call).await
    }

    /// Waits until a grant counts; a grant that does not count is withdrawn.
    async fn grant(&self, attempts: &[Attempt], sent: &Wire) -> Result<(), StoreError> {
        let Err(error) = sent.acknowledged().await else {
            return Ok(());
        };
        for attempt in attempts {
            if let Err(failed) = Box::pin(self.withdraw(attempt, false)).await {
                tracing::debug!(%failed, "could not take back what no replica acknowledged");
                // It may be held: the caller gets `Unanswered`, and withdraws it.
                return Err(StoreError::new(StoreErrorKind::Unanswered, error));
            }
        }
        Err(error)
    }

    /// Whether one script can ask for all of these.
    fn takes_at_once(&self, attempts: &[Attempt]) -> bool {
        let router = &self.inner.router;
        let slots = attempts.iter().map(|attempt| &attempt.hold.key);
        let mut slots = slots.map(|key| router.slot(key).ok());
        let first = slots.next().flatten();
        (1..=BATCH).contains(&attempts.len())
            && several::are_apart(attempts)
            && first.is_some()
            && slots.all(|other| other == first)
    }
}
