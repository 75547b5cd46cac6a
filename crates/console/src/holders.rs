//! Asks the store for the holders of keys that this process waits for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};

use crate::millis;
use tower_distributed_lock::store::{Holder, Inspection, ProcessInfo};
use tower_distributed_lock::{LockClient, LockError, LockKey};

/// How many keys are asked about at a time.
const AT_A_TIME: usize = 16;

/// How long a viewer waits for the store's answers about a page of keys.
const FIND_LIMIT: Duration = Duration::from_millis(500);

/// How long an answer is shown, at least. Each question is a script on the store.
const FRESH: Duration = Duration::from_secs(2);

/// After the questions about a page comes a pause that is so many times as long, so that a store in trouble is asked less.
const SHARE: u32 = 10;

/// Asks the store for the holders of a key.
pub(crate) struct Holders {
    locks: LockClient,
    here: String,
    round: Mutex<Round>,
}

/// The answers that are shown until the round is over, and the time before which the store is not asked. The mutex protects all of it.
struct Round {
    until: Instant,
    asks_from: Instant,
    answers: HashMap<LockKey, Answer>,
}

/// The first holder of a key, once the store has said it. `None`: it has none, or the question has failed.
type Answer = Arc<OnceCell<Option<HolderElsewhere>>>;

/// The first holder of a key, by the store's answer.
pub(crate) struct HolderElsewhere {
    pub(crate) who: Value,
    remaining: Duration,
    asked: Instant,
}

impl HolderElsewhere {
    /// The rest of its lease, in milliseconds; `None` if it does not end.
    pub(crate) fn left(&self) -> Option<u64> {
        let now = |remaining: u64| remaining.saturating_sub(millis::to_ms(self.asked.elapsed()));
        millis::remaining_ms(self.remaining).map(now)
    }
}

/// A holder: its kind, its name in the store, and its process and the route of its request, if that has announced itself. The
/// kind is `here`: this process; `ours`: another process of this crate; `java`: a Redisson client; or `unknown`.
pub(crate) fn who(
    kind: &str,
    id: Option<&str>,
    process: Option<&ProcessInfo>,
    route: Option<&str>,
) -> Value {
    json!({ "kind": kind, "id": id, "process": process, "route": route })
}

impl Holders {
    pub(crate) fn new(locks: &LockClient) -> Self {
        Self {
            here: locks.id().to_string(),
            locks: locks.clone(),
            round: Mutex::new(Round::new()),
        }
    }

    /// Describes a holder.
    pub(crate) fn who(&self, holder: &Holder) -> Value {
        let kind = match () {
            () if holder.id.starts_with(&self.here) => "here",
            () if holder.is_ours() => "ours",
            () => "java",
        };
        let route = holder.route.as_deref();
        who(kind, Some(&holder.id), holder.process.as_ref(), route)
    }

    /// The state of a key in the store.
    pub(crate) async fn inspect(&self, key: &LockKey) -> Result<Inspection, LockError> {
        self.locks.admin()?.inspect(key).await
    }

    /// Finds the holders of these keys, as far as the store answers in time. All viewers share a round of answers. The slower the store
    /// is, the longer it is not asked again.
    pub(crate) async fn find<'a>(
        &self,
        keys: impl Iterator<Item = &'a LockKey>,
    ) -> HashMap<&'a LockKey, Answer> {
        let began = Instant::now();
        let (found, asks) = {
            let mut round = self.round();
            let asks = began >= round.asks_from;
            if asks && began >= round.until {
                *round = Round::new();
            }
            let answers =
                keys.map(|key| (key, round.answers.entry(key.clone()).or_default().clone()));
            (HashMap::from_iter(answers), asks)
        };
        if asks && !found.values().all(|answer| answer.initialized()) {
            let questions = found.iter().map(|(key, answer)| async move {
                answer.get_or_init(|| self.holder(key)).await;
            });
            let questions: Vec<_> = questions.collect();
            let asked = stream::iter(questions).for_each_concurrent(AT_A_TIME, |ask| ask);
            // Holders that are not known by then are left out this time.
            drop(timeout(FIND_LIMIT, asked).await);
            self.round().asks_from = Instant::now() + began.elapsed() * SHARE;
        }
        found
    }

    fn round(&self) -> MutexGuard<'_, Round> {
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn holder(&self, key: &LockKey) -> Option<HolderElsewhere> {
        let inspection = self.inspect(key).await.ok()?;
        let holder = inspection.holders.first()?;
        Some(HolderElsewhere {
            who: self.who(holder),
            remaining: holder.remaining,
            asked: Instant::now(),
        })
    }
}

impl Round {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            until: now + FRESH,
            asks_from: now,
            answers: HashMap::new(),
        }
    }
}
