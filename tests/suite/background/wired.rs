//! A store with partitions, each of which can be cut off. It records every call.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::time::sleep;
use tower_distributed_lock::audit::{Audit, Deployment};
use tower_distributed_lock::error::{StoreError, StoreErrorKind};
use tower_distributed_lock::lock::Hold;
use tower_distributed_lock::store::{
    Attempt, Capabilities, HoldStatus, LockStore, Outcome, Record, Released, Renewal,
    SeveralOutcome, Unsupported, Wakeups, Want,
};
use tower_distributed_lock::{LockKey, MemoryStore};

/// Clones share the store. The partition of a key is the number before its colon.
#[derive(Clone, Default)]
pub(super) struct Wired {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    inner: MemoryStore,
    /// The partitions that cannot be reached.
    cut: Mutex<HashSet<u16>>,
    /// The partitions that refuse every call, as without rights.
    denied: Mutex<HashSet<u16>>,
    /// The partition that is not available for a moment when it is asked for one key.
    moving: Mutex<Option<u16>>,
    /// The partition that is cut off when it has renewed.
    cut_at_renewal: Mutex<Option<u16>>,
    /// How long each call takes.
    latency: Mutex<Duration>,
    /// The keys that end so are never renewed.
    refused: Mutex<Option<&'static str>>,
    calls: Mutex<Vec<Call>>,
    in_flight: AtomicUsize,
    most_in_flight: AtomicUsize,
    abandoned: Mutex<Vec<&'static str>>,
    panics: AtomicUsize,
    release_panics: AtomicBool,
    answers_wrongly: AtomicBool,
    runtime: Mutex<Option<Handle>>,
}

/// One call of the store.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) what: &'static str,
    pub(super) part: u16,
    pub(super) holds: usize,
}

impl Wired {
    /// Sets the duration of later calls.
    pub(super) fn slow(&self, latency: Duration) {
        *self.shared.latency.lock().unwrap() = latency;
    }

    /// Refuses to renew the keys that end so.
    pub(super) fn refuse(&self, end: &'static str) {
        *self.shared.refused.lock().unwrap() = Some(end);
    }

    /// Cuts the partition off until [`restore`](Self::restore).
    pub(super) fn cut(&self, part: u16) {
        self.shared.cut.lock().unwrap().insert(part);
    }

    pub(super) fn restore(&self, part: u16) {
        self.shared.cut.lock().unwrap().remove(&part);
    }

    /// Refuses every call of the partition until [`allow`](Self::allow).
    pub(super) fn deny(&self, part: u16) {
        self.shared.denied.lock().unwrap().insert(part);
    }

    pub(super) fn allow(&self, part: u16) {
        self.shared.denied.lock().unwrap().remove(&part);
    }

    /// The answer to the next renewal or check is lost, and the partition is cut off from then on.
    pub(super) fn cut_at_renewal(&self, part: u16) {
        *self.shared.cut_at_renewal.lock().unwrap() = Some(part);
    }

    /// The next `times` renewals panic.
    pub(super) fn panic_in_renewals(&self, times: usize) {
        self.shared.panics.store(times, Ordering::SeqCst);
    }

    /// The next release panics.
    pub(super) fn panic_in_release(&self) {
        self.shared.release_panics.store(true, Ordering::SeqCst);
    }

    /// Sets whether later answers about several holds omit the last one, and refusals of several name a key that was not asked for.
    pub(super) fn answer_wrongly(&self, wrongly: bool) {
        self.shared.answers_wrongly.store(wrongly, Ordering::SeqCst);
    }

    /// The calls named `what` of one partition.
    pub(super) fn calls(&self, what: &str, part: u16) -> Vec<Call> {
        let calls = self.shared.calls.lock().unwrap();
        let calls = calls
            .iter()
            .filter(|call| call.what == what && call.part == part);
        calls.copied().collect()
    }

    /// The number of calls of all partitions.
    pub(super) fn count(&self) -> usize {
        self.shared.calls.lock().unwrap().len()
    }

    /// The largest number of concurrent calls since this was last called.
    pub(super) fn most_in_flight(&self) -> usize {
        self.shared.most_in_flight.swap(0, Ordering::SeqCst)
    }

    /// The calls whose future was dropped before its end.
    pub(super) fn abandoned(&self) -> Vec<&'static str> {
        self.shared.abandoned.lock().unwrap().clone()
    }

    /// The wrapped store.
    pub(super) fn inner(&self) -> MemoryStore {
        self.shared.inner.clone()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shared.inner.is_empty()
    }

    async fn call<T>(
        &self,
        what: &'static str,
        keys: &[&LockKey],
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let shared = &*self.shared;
        let part = keys.first().map_or(0, |key| part(key));
        let call = Call {
            what,
            part,
            holds: keys.len(),
        };
        shared.calls.lock().unwrap().push(call);
        let mut under_way = UnderWay::begin(shared, what);
        let latency = *shared.latency.lock().unwrap();
        if !latency.is_zero() {
            sleep(latency).await;
        }
        let is_cut = shared.cut.lock().unwrap().contains(&part);
        let is_denied = shared.denied.lock().unwrap().contains(&part);
        let is_moving = what == "acquire" && keys.len() == 1;
        let is_moving = is_moving && *shared.moving.lock().unwrap() == Some(part);
        let answer = match () {
            () if is_cut => Err(StoreError::new(
                StoreErrorKind::Unreachable,
                "it is cut off",
            )),
            () if is_denied => Err(StoreError::new(StoreErrorKind::Refused, "no rights")),
            () if is_moving => Err(StoreError::new(StoreErrorKind::Transient, "it moves")),
            () => answer.await,
        };
        under_way.done = true;
        answer
    }

    fn spoil<T>(&self, mut answers: Vec<T>) -> Vec<T> {
        if self.shared.answers_wrongly.load(Ordering::SeqCst) {
            answers.pop();
        }
        answers
    }
}

struct UnderWay<'a> {
    shared: &'a Shared,
    what: &'static str,
    done: bool,
}

impl<'a> UnderWay<'a> {
    fn begin(shared: &'a Shared, what: &'static str) -> Self {
        let now = shared.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        shared.most_in_flight.fetch_max(now, Ordering::SeqCst);
        Self {
            shared,
            what,
            done: false,
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.shared.in_flight.fetch_sub(1, Ordering::SeqCst);
        if !self.done && !std::thread::panicking() {
            self.shared.abandoned.lock().unwrap().push(self.what);
        }
    }
}

fn part(key: &LockKey) -> u16 {
    let part = key.as_str().split(':').next();
    part.and_then(|part| part.parse().ok()).unwrap_or(0)
}

impl LockStore for Wired {
    async fn acquire(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
        let answer = self.shared.inner.acquire(attempt);
        self.call("acquire", &[&attempt.hold.key], answer).await
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<HoldStatus>, StoreError> {
        let keys: Vec<_> = renewals.iter().map(|renewal| &renewal.hold.key).collect();
        let is_check = renewals.iter().all(|renewal| renewal.lease.is_none());
        let answer = async {
            let panics = &self.shared.panics;
            let next = |left: usize| left.checked_sub(1).filter(|_| !is_check);
            let panics = panics.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
            assert!(panics.is_err(), "the renewal that was to panic");
            let mut statuses = self.shared.inner.renew(renewals).await?;
            if let Some(end) = *self.shared.refused.lock().unwrap() {
                for (key, status) in keys.iter().zip(&mut statuses) {
                    if key.as_str().ends_with(end) {
                        *status = HoldStatus::Unknown;
                    }
                }
            }
            if let Some(cut) = self.shared.cut_at_renewal.lock().unwrap().take() {
                self.cut(cut);
                return Err(StoreError::new(
                    StoreErrorKind::Unanswered,
                    "it was cut off before its answer",
                ));
            }
            Ok(self.spoil(statuses))
        };
        let what = if is_check { "check" } else { "renew" };
        self.call(what, &keys, answer).await
    }

    async fn release(&self, hold: &Hold, record: Option<&Record>) -> Result<Released, StoreError> {
        let answer = async {
            let panics = self.shared.release_panics.swap(false, Ordering::SeqCst);
            assert!(!panics, "the release that was to panic");
            self.shared.inner.release(hold, record).await
        };
        self.call("release", &[&hold.key], answer).await
    }

    fn capabilities(&self) -> Capabilities {
        let shared = self.shared.clone();
        let capabilities = self.shared.inner.capabilities();
        capabilities.renewal_runtime(move || shared.runtime.lock().unwrap().take())
    }

    async fn withdraw(&self, attempt: &Attempt, unanswered: bool) -> Result<(), StoreError> {
        let answer = self.shared.inner.withdraw(attempt, unanswered);
        self.call("withdraw", &[&attempt.hold.key], answer).await
    }

    async fn subscribe(&self, attempt: &Attempt) -> Result<Wakeups, StoreError> {
        let answer = self.shared.inner.subscribe(attempt);
        self.call("subscribe", &[&attempt.hold.key], answer).await
    }

    async fn acquire_several(
        &self,
        attempts: &[Attempt],
        want: Want,
    ) -> Result<SeveralOutcome, StoreError> {
        let keys: Vec<_> = attempts.iter().map(|attempt| &attempt.hold.key).collect();
        let answer = async {
            let outcome = self.shared.inner.acquire_several(attempts, want).await?;
            Ok(match outcome {
                SeveralOutcome::Granted(grants) => SeveralOutcome::Granted(self.spoil(grants)),
                SeveralOutcome::Refused { index, retry_after } => SeveralOutcome::Refused {
                    index: match self.shared.answers_wrongly.load(Ordering::SeqCst) {
                        true => Some(keys.len()),
                        false => index,
                    },
                    retry_after,
                },
            })
        };
        self.call("acquire", &keys, answer).await
    }

    async fn record(&self, key: &LockKey) -> Result<Option<Bytes>, StoreError> {
        let answer = self.shared.inner.record(key);
        self.call("record", &[key], answer).await
    }

    async fn audit(&self) -> Result<Audit, StoreError> {
        let answer = async { Ok(Audit::new(Deployment::Unknown)) };
        self.call("audit", &[], answer).await
    }

    fn partition(&self, key: &LockKey) -> Result<u16, Unsupported> {
        Ok(part(key))
    }
}
