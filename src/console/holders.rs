//! Asks the store for the holders of keys that this process waits for.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::millis;
use crate::client::LockClient;
use crate::error::LockError;
use crate::lock::LockKey;
use crate::store::{Holder, Inspection, ProcessInfo};
use crate::sync::Mutex;

/// How many keys are asked about at a time.
const AT_A_TIME: usize = 16;

/// How long a viewer waits for the store's answers about a page of keys.
const LIMIT: Duration = Duration::from_millis(500);

/// How long an answer is kept, and how many are kept.
const FRESH: Duration = Duration::from_secs(2);
const KEPT: usize = 1024;

/// Asks the store for the holders of a key, and keeps the answers for a short time.
pub(super) struct HolderCache {
    locks: LockClient,
    here: String,
    /// The recent answers. The mutex protects the map, and is never held while the store is asked.
    known: Mutex<HashMap<LockKey, HolderElsewhere>>,
}

/// The first holder of a key, by the store's answer at a time.
#[derive(Clone)]
pub(super) struct HolderElsewhere {
    at: Instant,
    pub(super) who: Value,
    /// The rest of its lease, in milliseconds; `None` if it does not end.
    pub(super) left: Option<u64>,
}

/// A holder: its kind, its name in the store, and its process and the route of its request, if that has announced itself. The
/// kind is `here`: this process; `ours`: another process of this crate; `java`: a Redisson client; or `unknown`.
pub(super) fn who(
    kind: &str,
    id: Option<&str>,
    process: Option<&ProcessInfo>,
    route: Option<&str>,
) -> Value {
    json!({ "kind": kind, "id": id, "process": process, "route": route })
}

impl HolderCache {
    pub(super) fn new(locks: &LockClient) -> Self {
        Self {
            here: locks.id().to_string(),
            locks: locks.clone(),
            known: Mutex::default(),
        }
    }

    /// Describes a holder.
    pub(super) fn who(&self, holder: &Holder) -> Value {
        let kind = match () {
            () if holder.id.starts_with(&self.here) => "here",
            () if holder.is_ours() => "ours",
            () => "java",
        };
        let route = holder.route.as_deref();
        who(kind, Some(&holder.id), holder.process.as_ref(), route)
    }

    /// The state of a key in the store.
    pub(super) async fn inspect(&self, key: &LockKey) -> Result<Inspection, LockError> {
        self.locks.admin()?.inspect(key).await
    }

    /// Finds the holders of these keys, as far as the store answers in time.
    pub(super) async fn find<'a>(
        &self,
        keys: impl Iterator<Item = (&'a LockKey, &'a mut Option<HolderElsewhere>)>,
    ) {
        let asked = keys.map(|(key, found)| async move { *found = self.holder(key).await });
        let asked: Vec<_> = asked.collect();
        let asked = stream::iter(asked).for_each_concurrent(AT_A_TIME, |ask| ask);
        // Holders that are not known by then are left out this time.
        drop(timeout(LIMIT, asked).await);
    }

    async fn holder(&self, key: &LockKey) -> Option<HolderElsewhere> {
        let known = self.known.lock().get(key).cloned();
        if let Some(known) = known
            && known.at.elapsed() < FRESH
        {
            return Some(known);
        }
        let inspection = self.inspect(key).await.ok()?;
        let holder = inspection.holders.first()?;
        let found = HolderElsewhere {
            at: Instant::now(),
            who: self.who(holder),
            left: millis::left(holder.remaining),
        };
        let mut known = self.known.lock();
        if known.len() >= KEPT {
            known.retain(|_, known| known.at.elapsed() < FRESH);
        }
        if known.len() < KEPT {
            known.insert(key.clone(), found.clone());
        }
        Some(found)
    }
}
