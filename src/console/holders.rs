//! Asks the store for the holders of keys that this process waits for.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use serde::Serialize;
use tokio::time::timeout;

use super::millis;
use crate::admin::{Holder, Inspection, ProcessInfo};
use crate::client::LockClient;
use crate::error::LockError;
use crate::lock::{HoldId, LockKey};
use crate::sync::Mutex;

/// How many keys are asked about at a time.
const AT_A_TIME: usize = 16;

/// How long a viewer waits for the store's answers about a page of keys.
const PATIENCE: Duration = Duration::from_millis(500);

/// How long an answer is kept, and how many are kept.
const FRESH: Duration = Duration::from_secs(2);
const KEPT: usize = 1024;

/// Asks the store for the holders of a key, and keeps the answers for a short time.
pub(super) struct HolderCache {
    locks: LockClient,
    here: String,
    /// The recent answers. The mutex protects the map, and is never held while the store is asked.
    known: Mutex<HashMap<LockKey, CachedHolders>>,
}

#[derive(Clone)]
struct CachedHolders {
    at: Instant,
    who: Who,
    left: Option<u64>,
}

/// A holder.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Who {
    /// `here`: this process; `ours`: another process of this crate; `java`: a Redisson client; `unknown`.
    kind: &'static str,
    /// Its name in the store.
    id: Option<String>,
    /// Its process, if that has announced itself.
    process: Option<ProcessInfo>,
    /// The route of its request, if its process has announced it.
    route: Option<String>,
}

impl Who {
    pub(super) fn unknown() -> Self {
        Self {
            kind: "unknown",
            id: None,
            process: None,
            route: None,
        }
    }

    pub(super) fn here(id: HoldId) -> Self {
        Self {
            kind: "here",
            id: Some(id.to_string()),
            ..Self::unknown()
        }
    }
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
    pub(super) fn who(&self, holder: &Holder) -> Who {
        let kind = match () {
            () if holder.id.starts_with(&self.here) => "here",
            () if holder.is_ours() => "ours",
            () => "java",
        };
        Who {
            kind,
            id: Some(holder.id.clone()),
            process: holder.process.clone(),
            route: holder.route.clone(),
        }
    }

    /// The state of a key in the store.
    pub(super) async fn inspect(&self, key: &LockKey) -> Result<Inspection, LockError> {
        self.locks.admin()?.inspect(key).await
    }

    /// Adds the holders of these keys and the rest of their leases, if the store answers in time.
    pub(super) async fn find<'a>(
        &self,
        rows: impl Iterator<Item = (&'a LockKey, &'a mut Who, &'a mut Option<u64>)>,
    ) {
        let asked = rows.map(|(key, who, left)| async move {
            if let Some(known) = self.holder(key).await {
                (*who, *left) = (known.who, known.left);
            }
        });
        let asked: Vec<_> = asked.collect();
        let asked = stream::iter(asked).for_each_concurrent(AT_A_TIME, |ask| ask);
        // Holders that are not known by then are left out this time.
        drop(timeout(PATIENCE, asked).await);
    }

    async fn holder(&self, key: &LockKey) -> Option<CachedHolders> {
        let known = self.known.lock().get(key).cloned();
        if let Some(known) = known
            && known.at.elapsed() < FRESH
        {
            return Some(known);
        }
        let inspection = self.inspect(key).await.ok()?;
        let holder = inspection.holders.first()?;
        let found = CachedHolders {
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
