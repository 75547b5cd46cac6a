//! Locks in Redis or Valkey, shared by many processes.
//!
//! The keys, fields, channels and messages are Redisson's, so Java services that use Redisson 3.15 to 4.7 take part in the
//! same locks. What this store adds stands in keys of its own, all of which expire: `tower_lock_…`.

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use deadpool_redis::{Config, Pool};
use futures_util::future::join_all;
use redis::IntoConnectionInfo;
use tokio::runtime::Handle;

use crate::error::{StoreError, StoreErrorKind};
use crate::key::LockKey;
use crate::lock::Hold;
use crate::store::{
    self, AllOutcome, AnyOutcome, Attempt, LockStore, Outcome, Record, Released, Renewal, Standing,
    Wakeups,
};

mod admin;
mod calls;
mod failure;
mod lane;
mod many;
mod names;
mod options;
mod records;
mod replicas;
mod reply;
mod script;
mod sentinel;
mod source;
mod subscriber;
mod subscriptions;
mod thread;

use lane::{Lane, Sent};
pub use options::RedisStoreBuilder;
pub use replicas::Replicas;
use script::Call;
use source::Source;
use subscriptions::Subscriptions;
use thread::Thread;

/// How many holds one script touches: few enough to keep the server responsive to others.
const BATCH: usize = 100;

/// Locks in one Redis or Valkey server (6.2 or newer), or in the one that [sentinels](RedisStore::sentinel) name.
///
/// Commands share a few connections, which deadpool creates, checks and bounds; one more connection listens for
/// wake-ups, and one renews. All of them are replaced when they break. While Redis is down, calls fail at once, and a
/// background task finds out when it is back.
///
/// Clients renew what they hold on a thread of the store's own, so that locks stay held while all workers of the runtime
/// are busy; the thread starts with the first hold.
///
/// When its memory is full, Redis grants nothing more, but holds are still released, with their records, and attempts
/// withdrawn: each of these scripts first frees, or writes what takes no room, and what it began Redis lets it finish.
///
/// Several keys are acquired in one script, all of them or any, as long as they are no more than a hundred.
///
/// Clones share everything. When the last one is dropped, so are its connections and tasks.
///
/// `Reentrant` and `Fair` attempts on one key exclude each other, but a `Reentrant` release does not wake `Fair` waiters, as
/// with Redisson: they find out when they ask again by themselves, within a second.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), tower_distributed_lock::StoreError> {
/// use tower_distributed_lock::{LockClient, RedisStore};
///
/// let locks = LockClient::new(RedisStore::connect("redis://127.0.0.1").await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisStore {
    inner: Arc<Inner>,
}

struct Inner {
    lanes: Box<[Arc<Lane>]>,
    /// Carries renewals and nothing else, from the thread.
    renewals: Arc<Lane>,
    /// Started when there is first something to renew; `None` if that failed.
    thread: OnceLock<Option<Thread>>,
    subscriptions: Subscriptions,
    source: Source,
    /// The same for the thread.
    apart: Source,
    /// Whether replicas are to acknowledge anything.
    acknowledging: bool,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.source.close();
        self.apart.close();
        for lane in self.lanes.iter().chain([&self.renewals]) {
            lane.close();
        }
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("connections", &self.inner.lanes.len())
            .finish_non_exhaustive()
    }
}

impl RedisStore {
    /// Connects to the server at `redis://…`, `rediss://…` (with the feature `redis-tls`) or `redis+unix://…`.
    ///
    /// # Errors
    ///
    /// As [`RedisStoreBuilder::connect`].
    pub async fn connect(address: impl IntoConnectionInfo) -> Result<Self, StoreError> {
        Self::builder(address).connect().await
    }

    /// Begins to set up a store for the server at `address`.
    pub fn builder(address: impl IntoConnectionInfo) -> RedisStoreBuilder {
        RedisStoreBuilder::new(address)
    }

    /// Begins to set up a store from a configuration of [`deadpool_redis`].
    pub fn from_config(config: Config) -> RedisStoreBuilder {
        RedisStoreBuilder::with_config(config)
    }

    /// Begins to set up a store that takes its connections out of `pool`, and keeps them.
    ///
    /// A pool does not tell where its connections lead, so `subscriptions` says it again, for the connection that listens
    /// for wake-ups: it must be the same server.
    pub fn from_pool(pool: Pool, subscriptions: impl IntoConnectionInfo) -> RedisStoreBuilder {
        RedisStoreBuilder::with_pool(pool, subscriptions)
    }

    /// Begins to set up a store in whichever server the sentinels name as `master`.
    ///
    /// All sentinels that there are should be listed: those that answer are believed in the order of the failovers that
    /// they have seen. Every connection asks them anew, and has its server confirm that it is a master. Commands and
    /// wake-ups follow a failover without a restart: until there is a master, calls fail with
    /// [`Transient`](crate::StoreErrorKind::Transient), so that whoever waits goes on waiting; holds that the new master
    /// knows are renewed in it, and others are lost. While no sentinel answers, open connections are used on.
    ///
    /// A failover loses what the new master had not heard yet. A hold that it never heard of can be granted again while
    /// its holder still works: the holder's renewal or release says [`Lost`](crate::LockError::Lost).
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), tower_distributed_lock::StoreError> {
    /// use tower_distributed_lock::RedisStore;
    ///
    /// let sentinels = ["redis://10.0.0.1:26379", "redis://10.0.0.2:26379", "redis://10.0.0.3:26379"];
    /// let store = RedisStore::sentinel(sentinels, "mymaster")
    ///     .servers("redis://locks:secret@any/0") // user, password, database; no host: the sentinels know it
    ///     .connect()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn sentinel<A: IntoConnectionInfo>(
        sentinels: impl IntoIterator<Item = A>,
        master: impl Into<String>,
    ) -> RedisStoreBuilder {
        RedisStoreBuilder::with_sentinels(sentinels, master)
    }

    /// The connection that carries everything about this key: what is sent later arrives later.
    fn lane(&self, key: &LockKey) -> usize {
        key.place_among(self.inner.lanes.len())
    }

    /// Reads the answer to a release. The server counts this store as one listener, however many listen through it.
    fn released(&self, hold: &Hold, answer: &redis::Value) -> Result<Released, StoreError> {
        let mut released = reply::released(answer)?;
        if released.listeners > 0 {
            let here = self
                .inner
                .subscriptions
                .listeners(&calls::channel(hold).to_string());
            released.listeners += here.saturating_sub(1);
        }
        Ok(released)
    }

    async fn call(&self, key: &LockKey, call: Call) -> Result<redis::Value, StoreError> {
        self.inner.lanes[self.lane(key)].call(&call).await
    }

    /// Calls a script whose effect counts when enough replicas know of it.
    async fn call_counting(
        &self,
        key: &LockKey,
        call: Call,
    ) -> Result<(redis::Value, Counting<'_>), StoreError> {
        let lane = &self.inner.lanes[self.lane(key)];
        let (answer, sent) = lane.call_on(&call).await?;
        Ok((answer, Counting { lane, sent }))
    }

    /// Ends a hold by a call, which is confirmed when enough replicas know that it has ended.
    async fn end(&self, hold: &Hold, call: Call) -> Result<Released, StoreError> {
        let (answer, effect) = self.call_counting(&hold.key, call).await?;
        let released = self.released(hold, &answer)?;
        if released.standing == Standing::Held {
            effect.counts().await?;
        }
        Ok(released)
    }

    /// Waits until a grant counts; one that does not is taken back.
    async fn grant(&self, attempts: &[Attempt], effect: Counting<'_>) -> Result<(), StoreError> {
        let Err(error) = effect.counts().await else {
            return Ok(());
        };
        for attempt in attempts {
            if let Err(failed) = self.withdraw(attempt, false).await {
                tracing::debug!(%failed, "could not take back what no replica acknowledged");
                // It may be held: the caller is told so, and takes it back in its own time.
                return Err(StoreError::new(StoreErrorKind::Unanswered, error));
            }
        }
        Err(error)
    }
}

/// Asks one question about many things, in as few scripts as the connections and [`BATCH`] allow.
async fn call_in_batches<'a, T>(
    lanes: &'a [Arc<Lane>],
    items: &'a [T],
    key: impl Fn(&T) -> &LockKey,
    call: impl Fn(&[&'a T]) -> Call,
) -> Result<Vec<Standing>, StoreError> {
    let mut by_lane = vec![Vec::new(); lanes.len()];
    for (place, item) in items.iter().enumerate() {
        by_lane[key(item).place_among(lanes.len())].push((place, item));
    }
    let batches = by_lane.iter().zip(lanes).flat_map(|(items, lane)| {
        let batches = items.chunks(BATCH);
        batches.map(move |batch| (lane, batch))
    });
    let answers = batches.map(|(lane, batch)| {
        let items: Vec<&T> = batch.iter().map(|&(_, item)| item).collect();
        let call = call(&items);
        async move {
            let (answer, sent) = lane.call_on(&call).await?;
            let standings = reply::standings(&answer, batch.len())?;
            if standings.contains(&Standing::Held) {
                Counting { lane, sent }.counts().await?;
            }
            Ok((batch, standings))
        }
    });
    let mut standings = vec![Standing::Gone; items.len()];
    // All are driven to their end: each batch has its effect, whatever becomes of the others.
    for answer in join_all(answers).await {
        let (batch, answers) = answer?;
        for ((place, _), standing) in batch.iter().zip(answers) {
            standings[*place] = standing;
        }
    }
    Ok(standings)
}

/// Begins leases anew, over some of the connections.
async fn renew(lanes: &[Arc<Lane>], renewals: &[Renewal]) -> Result<Vec<Standing>, StoreError> {
    call_in_batches(
        lanes,
        renewals,
        |renewal| &renewal.hold.key,
        |batch| calls::renew(batch.iter().copied()),
    )
    .await
}

/// Something that was done, and counts when enough replicas know of it.
struct Counting<'a> {
    lane: &'a Arc<Lane>,
    sent: Sent,
}

impl Counting<'_> {
    async fn counts(self) -> Result<(), StoreError> {
        self.lane.acknowledged(self.sent).await
    }
}

/// Whether one script may ask for all of these. A server that is no Cluster serves any keys together.
fn takes_at_once(attempts: &[Attempt]) -> bool {
    (1..=BATCH).contains(&attempts.len()) && store::many::are_apart(attempts)
}

impl LockStore for RedisStore {
    async fn acquire(&self, attempt: &Attempt) -> Result<Outcome, StoreError> {
        let Hold { key, mode, .. } = &attempt.hold;
        let (answer, effect) = self.call_counting(key, calls::acquire(attempt)).await?;
        let outcome = reply::outcome(&answer, mode.family())?;
        if let Outcome::Granted { .. } = outcome {
            self.grant(std::slice::from_ref(attempt), effect).await?;
        }
        Ok(outcome)
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Standing>, StoreError> {
        let Inner {
            lanes,
            renewals: lane,
            ..
        } = &*self.inner;
        let renewed = renew(std::slice::from_ref(lane), renewals).await;
        match renewed {
            // The server may have no room for one more connection: better renewed like everything else than not at all.
            // Not while that has to be restored, which would happen on this runtime.
            Err(error)
                if error.kind() == StoreErrorKind::Unreachable
                    && lanes.iter().all(|lane| lane.is_up()) =>
            {
                renew(lanes, renewals).await
            }
            renewed => renewed,
        }
    }

    async fn check(&self, holds: &[Hold]) -> Result<Vec<Standing>, StoreError> {
        call_in_batches(
            &self.inner.lanes,
            holds,
            |hold| &hold.key,
            |batch| match self.inner.acknowledging {
                true => calls::check_marked(batch.iter().copied()),
                false => calls::check(batch.iter().copied()),
            },
        )
        .await
    }

    async fn release(&self, hold: &Hold) -> Result<Released, StoreError> {
        self.end(hold, calls::release(hold)).await
    }

    async fn acquire_all(&self, attempts: &[Attempt]) -> Result<AllOutcome, StoreError> {
        if !takes_at_once(attempts) {
            return store::many::all(self, attempts).await;
        }
        let call = many::acquire(&script::ACQUIRE_ALL, attempts);
        let (answer, effect) = self.call_counting(&attempts[0].hold.key, call).await?;
        let outcome = many::all(&answer, attempts)?;
        if let AllOutcome::Granted(_) = outcome {
            self.grant(attempts, effect).await?;
        }
        Ok(outcome)
    }

    async fn acquire_any(&self, attempts: &[Attempt]) -> Result<AnyOutcome, StoreError> {
        if !takes_at_once(attempts) {
            return store::many::any(self, attempts).await;
        }
        let call = many::acquire(&script::ACQUIRE_ANY, attempts);
        let (answer, effect) = self.call_counting(&attempts[0].hold.key, call).await?;
        let outcome = many::any(&answer, attempts)?;
        if let AnyOutcome::Granted { index, .. } = outcome {
            self.grant(&attempts[index..=index], effect).await?;
        }
        Ok(outcome)
    }

    async fn release_recording(
        &self,
        hold: &Hold,
        record: &Record,
    ) -> Result<Released, StoreError> {
        self.end(hold, records::release(hold, record)?).await
    }

    fn keeps_records(&self) -> bool {
        true
    }

    async fn record(&self, key: &LockKey) -> Result<Option<Bytes>, StoreError> {
        records::value(self.call(key, records::read(key)).await?)
    }

    async fn withdraw(&self, attempt: &Attempt, unanswered: bool) -> Result<(), StoreError> {
        let call = calls::withdraw(attempt, unanswered);
        reply::released(&self.call(&attempt.hold.key, call).await?).map(drop)
    }

    async fn subscribe(&self, attempt: &Attempt) -> Result<Wakeups, StoreError> {
        let channel = calls::channel(&attempt.hold).to_string();
        self.inner.subscriptions.listen(channel).await
    }

    fn renewal_runtime(&self) -> Option<Handle> {
        let thread = self.inner.thread.get_or_init(|| {
            let started = Thread::start("lock-renewals");
            started
                .inspect_err(|error| tracing::warn!(%error, "no thread for renewals: they need a free worker"))
                .ok()
        });
        thread.as_ref().map(Thread::runtime)
    }
}
