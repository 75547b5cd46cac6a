//! Waiting with a subscription that ends, or that does not come.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, sleep};
use tower_distributed_lock::error::{StoreError, StoreErrorKind};
use tower_distributed_lock::lock::Hold;
use tower_distributed_lock::store::{
    Attempt, Capabilities, HoldStatus, LockStore, Outcome, Record, Released, Renewal, Wakeups,
};
use tower_distributed_lock::{LockClient, MemoryStore};
use tower_distributed_lock_quorum::QuorumStore;

const MOMENT: Duration = Duration::from_millis(100);

const SECOND: Duration = Duration::from_secs(1);

/// More subscriptions than any test needs. A client that goes on without a pause reaches it at once, and gets no more.
const MANY: usize = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// A subscription lasts until [`Listened::end_all`].
    Lasts,
    /// The same, but a subscription begins so much later.
    Late(Duration),
    /// A subscription is over when it begins.
    Over,
    /// A subscription is over a little later.
    EndsSoon,
    /// The store refuses each at once.
    Fails,
    /// No subscription begins.
    Hangs,
    /// As `Late`, and meanwhile the store has no connection for anything else.
    Occupies(Duration),
}

/// The memory store, with subscriptions of its own.
#[derive(Clone)]
struct Listened {
    memory: MemoryStore,
    manner: Manner,
    /// How long an answer to an attempt takes.
    answers_after: Duration,
    /// Whether a release reports listeners, and that waiters have no line.
    without_line: bool,
    connection: Arc<Mutex<()>>,
    ends: Arc<watch::Sender<()>>,
    subscribed: Arc<AtomicUsize>,
}

impl Listened {
    fn new(manner: Manner) -> Self {
        Self {
            memory: MemoryStore::new(),
            manner,
            answers_after: Duration::ZERO,
            without_line: false,
            connection: Arc::default(),
            ends: Arc::default(),
            subscribed: Arc::default(),
        }
    }

    /// Ends the subscriptions that there are.
    fn end_all(&self) {
        self.ends.send_replace(());
    }

    fn subscribed(&self) -> usize {
        self.subscribed.load(Ordering::Relaxed)
    }
}

impl LockStore for Listened {
    async fn acquire(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
        let _connection = self.connection.lock().await;
        let outcome = self.memory.acquire(attempt).await;
        if !self.answers_after.is_zero() {
            sleep(self.answers_after).await;
        }
        outcome
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<HoldStatus>, StoreError> {
        self.memory.renew(renewals).await
    }

    async fn release(&self, hold: &Hold, record: Option<&Record>) -> Result<Released, StoreError> {
        let released = self.memory.release(hold, record).await?;
        Ok(match self.without_line {
            true => Released::new(released.status, 5),
            false => released,
        })
    }

    async fn withdraw(&self, attempt: &Attempt, unanswered: bool) -> Result<(), StoreError> {
        self.memory.withdraw(attempt, unanswered).await
    }

    async fn subscribe(&self, attempt: &Attempt) -> Result<Wakeups, StoreError> {
        let before = self.subscribed.fetch_add(1, Ordering::Relaxed);
        let (signal, wakeups) = watch::channel(());
        match self.manner {
            Manner::Lasts => {}
            Manner::Late(after) => sleep(after).await,
            Manner::Occupies(time) => {
                let _connection = self.connection.lock().await;
                sleep(time).await;
            }
            Manner::Fails if before < MANY => {
                return Err(StoreError::new(StoreErrorKind::Refused, "no more of them"));
            }
            Manner::Over if before < MANY => return Ok(Wakeups::new(wakeups, ())),
            Manner::EndsSoon if before < MANY => {
                tokio::spawn(async move {
                    sleep(Duration::from_millis(1)).await;
                    drop(signal);
                });
                return Ok(Wakeups::new(wakeups, ()));
            }
            Manner::Over | Manner::EndsSoon | Manner::Fails | Manner::Hangs => {
                std::future::pending().await
            }
        }
        let mut inner = self.memory.subscribe(attempt).await?;
        let mut end = self.ends.subscribe();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    () = signal.closed() => return,
                    true = inner.wait() => {
                        signal.send_replace(());
                    }
                    _ = end.changed() => return,
                }
            }
        });
        Ok(Wakeups::new(wakeups, ()))
    }

    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }
}

/// How long a waiter waits for a key that is free. `meanwhile` runs while another client holds it.
async fn waits<S: LockStore + Clone>(
    store: S,
    any: bool,
    meanwhile: impl AsyncFnOnce(),
) -> Duration {
    let [here, elsewhere] = [store.clone(), store].map(LockClient::new);
    let held = elsewhere.lock("a").await.unwrap();
    let request = match any {
        true => here.lock_any(["a", "a-too"]),
        false => here.lock("a"),
    };
    let held_too = elsewhere.lock("a-too").await.unwrap();
    let waiting = tokio::spawn(request.wait(60 * SECOND).acquire());
    sleep(MOMENT).await;
    meanwhile().await;
    held.release().await.unwrap();
    let free = Instant::now();
    let granted = waiting.await.unwrap().unwrap();
    let waited = free.elapsed();
    granted.release().await.unwrap();
    held_too.release().await.unwrap();
    waited
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_ends_is_subscribed_again_at_once() {
    for any in [false, true] {
        let store = Listened::new(Manner::Lasts);
        let waited = waits(store.clone(), any, async || {
            sleep(2 * SECOND).await;
            let before = store.subscribed();
            store.end_all();
            sleep(MOMENT).await;
            assert_eq!(store.subscribed(), 2 * before);
        });
        assert!(waited.await < MOMENT, "it is woken, any: {any}");
    }
}

/// Its place would be the first in line, and keep every other request out.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_while_its_subscription_hangs_leaves_the_line_at_once() {
    let store = Listened::new(Manner::Hangs);
    let [here, elsewhere, third] = [(); 3].map(|()| LockClient::new(store.clone()));
    let held = elsewhere.lock("a").await.unwrap();
    let waiting = tokio::spawn(here.lock("a").wait(60 * SECOND).acquire());
    sleep(MOMENT).await;
    waiting.abort();
    sleep(MOMENT / 10).await;
    held.release().await.unwrap();
    drop(third.lock("a").wait(MOMENT).await.unwrap());
}

/// Nothing reports a release between the two subscriptions.
#[tokio::test(start_paused = true)]
async fn a_request_asks_as_soon_as_its_new_subscription_is_confirmed() {
    for any in [false, true] {
        let store = Listened::new(Manner::Late(MOMENT));
        let waited = waits(store.clone(), any, async || {
            sleep(2 * SECOND).await;
            store.end_all();
            sleep(MOMENT / 2).await;
        });
        assert!(waited.await < MOMENT, "any: {any}");
    }
}

/// The wake-up and the end come while a refusal is on its way, and another subscription would come too early.
#[tokio::test(start_paused = true)]
async fn a_wake_up_before_the_end_of_a_subscription_is_not_lost() {
    let answers_after = MOMENT / 10;
    let store = Listened {
        answers_after,
        ..Listened::new(Manner::Lasts)
    };
    let [here, elsewhere] = [(); 2].map(|()| LockClient::new(store.clone()));
    let held = elsewhere.lock("a").await.unwrap();
    let waiting = tokio::spawn(here.lock("a").wait(60 * SECOND).acquire());
    sleep(answers_after * 3 / 2).await;
    assert_eq!(store.subscribed(), 1, "it asks again");
    let asked = Instant::now();
    held.release().await.unwrap();
    sleep(Duration::from_millis(1)).await;
    store.end_all();
    drop(waiting.await.unwrap().unwrap());
    assert!(asked.elapsed() < MOMENT, "{:?}", asked.elapsed());
}

/// A request leaves its subscription to the next one of its process.
#[tokio::test(start_paused = true)]
async fn a_subscription_that_ended_before_it_is_handed_on_is_subscribed_again() {
    let store = Listened::new(Manner::Lasts);
    let client = || LockClient::builder(store.clone()).handovers(0).build();
    let [here, elsewhere, third] = [(); 3].map(|()| client());
    let held = elsewhere.lock("a").await.unwrap();
    let request = |locks: &LockClient| {
        let request = locks.lock("a").wait(60 * SECOND).acquire();
        tokio::spawn(request)
    };
    let (first, next) = (request(&here), request(&here));
    sleep(MOMENT).await;
    let far = request(&third);
    sleep(MOMENT).await;
    held.release().await.unwrap();
    let first = first.await.unwrap().unwrap();
    store.end_all();
    sleep(MOMENT).await;
    first.release().await.unwrap();
    let far = far.await.unwrap().unwrap();
    sleep(MOMENT).await;
    far.release().await.unwrap();
    let free = Instant::now();
    drop(next.await.unwrap().unwrap());
    assert!(free.elapsed() < MOMENT, "{:?}", free.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_request_polls_when_its_subscriptions_end_soon() {
    for manner in [Manner::Over, Manner::EndsSoon, Manner::Fails] {
        for any in [false, true] {
            let store = Listened::new(manner);
            let waited = waits(store.clone(), any, async || sleep(20 * SECOND).await);
            assert!(waited.await <= SECOND, "{manner:?}, any: {any}");
            let subscribed = store.subscribed();
            assert!(
                subscribed < MANY,
                "{manner:?}: it subscribes without a pause"
            );
        }
    }
}

/// L2.
#[tokio::test(start_paused = true)]
async fn a_request_polls_while_it_waits_for_its_subscription() {
    for any in [false, true] {
        let store = Listened::new(Manner::Hangs);
        let waited = waits(store.clone(), any, async || sleep(20 * SECOND).await);
        assert!(waited.await <= SECOND, "any: {any}");
        let keys = if any { 2 } else { 1 };
        assert_eq!(store.subscribed(), keys, "it waits for the first ones");
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_takes_longer_than_a_poll_is_waited_for() {
    for any in [false, true] {
        let store = Listened::new(Manner::Late(5 * SECOND));
        let waited = waits(store, any, async || sleep(20 * SECOND).await);
        assert!(waited.await < MOMENT, "it is woken, any: {any}");
    }
}

/// A subscription that the request no longer waits for goes on, so that it gives back what the next question needs.
#[tokio::test(start_paused = true)]
async fn a_subscription_that_takes_long_does_not_keep_the_store_from_answering() {
    for any in [false, true] {
        let store = Listened::new(Manner::Occupies(5 * SECOND));
        let waited = waits(store, any, async || sleep(20 * SECOND).await);
        assert!(waited.await <= SECOND, "any: {any}");
    }
}

/// A request that owes other processes a turn listens meanwhile.
#[tokio::test(start_paused = true)]
async fn a_request_yields_for_a_while_also_without_a_subscription() {
    for manner in [Manner::Over, Manner::EndsSoon, Manner::Hangs] {
        let store = Listened {
            without_line: true,
            ..Listened::new(manner)
        };
        let locks = LockClient::builder(store).handovers(0).build();
        let held = locks.lock("a").await.unwrap();
        let waiting = tokio::spawn(locks.lock("a").wait(60 * SECOND).acquire());
        sleep(MOMENT).await;
        let free = Instant::now();
        held.release().await.unwrap();
        drop(waiting.await.unwrap().unwrap());
        assert!(free.elapsed() < SECOND, "{manner:?}: {:?}", free.elapsed());
    }
}

/// Its own subscription is over with the first of theirs.
#[tokio::test(start_paused = true)]
async fn a_quorum_is_listened_to_again_when_subscriptions_in_its_stores_have_ended() {
    for ended in [1, 3] {
        let stores = [(); 3].map(|()| Listened::new(Manner::Lasts));
        let quorum = QuorumStore::new(stores.clone()).unwrap();
        let waited = waits(quorum, false, async || {
            stores[..ended].iter().for_each(Listened::end_all);
            sleep(3 * SECOND).await;
            assert!(stores.iter().all(|store| store.subscribed() == 2));
        });
        assert!(waited.await < MOMENT, "it is woken");
    }
}

#[tokio::test(start_paused = true)]
async fn a_quorum_does_not_hurry_when_subscriptions_are_over_at_once() {
    let stores = [(); 3].map(|()| Listened::new(Manner::Over));
    let quorum = QuorumStore::new(stores.clone()).unwrap();
    let waited = waits(quorum, false, async || sleep(20 * SECOND).await);
    assert!(waited.await <= SECOND);
    for store in stores {
        assert!(store.subscribed() < MANY, "it subscribes without a pause");
    }
}
