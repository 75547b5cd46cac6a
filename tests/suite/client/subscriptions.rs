//! Waiting with a subscription that ends, or that does not come.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tower_distributed_lock::store::{
    Attempt, Capabilities, HoldStatus, Outcome, Release, Released, Renewal,
};
use tower_distributed_lock::{
    LockClient, LockStore, MemoryStore, QuorumStore, StoreError, Wakeups,
};

const MOMENT: Duration = Duration::from_millis(100);

const SECOND: Duration = Duration::from_secs(1);

/// More subscriptions than any test needs. A client that goes on without a pause reaches it at once, and gets no more.
const MANY: usize = 1_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// A subscription lasts until [`Listened::end_all`].
    Lasts,
    /// A subscription is over when it begins.
    Over,
    /// No subscription begins.
    Hangs,
}

/// The memory store, with subscriptions of its own.
#[derive(Clone)]
struct Listened {
    memory: MemoryStore,
    manner: Manner,
    ends: Arc<watch::Sender<()>>,
    subscribed: Arc<AtomicUsize>,
}

impl Listened {
    fn new(manner: Manner) -> Self {
        Self {
            memory: MemoryStore::new(),
            manner,
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
        self.memory.acquire(attempt).await
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<HoldStatus>, StoreError> {
        self.memory.renew(renewals).await
    }

    async fn release(&self, releases: &[Release]) -> Result<Vec<Released>, StoreError> {
        self.memory.release(releases).await
    }

    async fn withdraw(&self, attempt: &Attempt, unanswered: bool) -> Result<(), StoreError> {
        self.memory.withdraw(attempt, unanswered).await
    }

    async fn subscribe(&self, attempt: &Attempt) -> Result<Wakeups, StoreError> {
        let before = self.subscribed.fetch_add(1, Ordering::Relaxed);
        let (signal, wakeups) = watch::channel(());
        match self.manner {
            Manner::Lasts => {}
            Manner::Over if before < MANY => return Ok(Wakeups::new(wakeups, ())),
            Manner::Over | Manner::Hangs => std::future::pending().await,
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
            let before = store.subscribed();
            store.end_all();
            sleep(MOMENT).await;
            assert_eq!(store.subscribed(), 2 * before);
        });
        assert!(waited.await < MOMENT, "it is woken, any: {any}");
    }
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
async fn a_request_polls_when_its_subscriptions_are_over_at_once() {
    for any in [false, true] {
        let store = Listened::new(Manner::Over);
        let waited = waits(store.clone(), any, async || sleep(20 * SECOND).await);
        assert!(waited.await <= SECOND, "any: {any}");
        assert!(store.subscribed() < MANY, "it subscribes without a pause");
    }
}

/// L2.
#[tokio::test(start_paused = true)]
async fn a_request_polls_while_it_waits_for_its_subscription() {
    for any in [false, true] {
        let store = Listened::new(Manner::Hangs);
        let waited = waits(store, any, async || sleep(20 * SECOND).await);
        assert!(waited.await <= SECOND, "any: {any}");
    }
}

/// Its own subscription does not end; it listens again in the stores.
#[tokio::test(start_paused = true)]
async fn a_quorum_listens_again_in_the_stores_whose_subscriptions_have_ended() {
    let stores = [(); 3].map(|()| Listened::new(Manner::Lasts));
    let quorum = QuorumStore::new(stores.clone()).unwrap();
    let waited = waits(quorum, false, async || {
        stores.iter().for_each(Listened::end_all);
        sleep(3 * SECOND).await;
        assert!(stores.iter().all(|store| store.subscribed() == 2));
    });
    assert!(waited.await < MOMENT, "it is woken");
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
