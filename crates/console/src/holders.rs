//! Asks the store for the holders of keys that this process waits for.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::millis;
use tower_distributed_lock::{Holder, Inspection, LockClient, LockError, LockKey, ProcessInfo};

/// How many keys are asked about at a time.
const AT_A_TIME: usize = 16;

/// How long a viewer waits for the store's answers about a page of keys.
const FIND_LIMIT: Duration = Duration::from_millis(500);

/// Asks the store for the holders of a key.
pub(crate) struct Holders {
    locks: LockClient,
    here: String,
}

/// The first holder of a key, by the store's answer.
pub(crate) struct HolderElsewhere {
    pub(crate) who: Value,
    /// The rest of its lease, in milliseconds; `None` if it does not end.
    pub(crate) left: Option<u64>,
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

    /// Finds the holders of these keys, as far as the store answers in time. It is asked once for each cell.
    pub(crate) async fn find<'a>(
        &self,
        keys: impl Iterator<Item = (&'a LockKey, &'a OnceCell<Option<HolderElsewhere>>)>,
    ) {
        let asked = keys.map(|(key, cell)| async move {
            cell.get_or_init(|| self.holder(key)).await;
        });
        let asked: Vec<_> = asked.collect();
        let asked = stream::iter(asked).for_each_concurrent(AT_A_TIME, |ask| ask);
        // Holders that are not known by then are left out this time.
        drop(timeout(FIND_LIMIT, asked).await);
    }

    async fn holder(&self, key: &LockKey) -> Option<HolderElsewhere> {
        let inspection = self.inspect(key).await.ok()?;
        let holder = inspection.holders.first()?;
        Some(HolderElsewhere {
            who: self.who(holder),
            left: millis::remaining_ms(holder.remaining),
        })
    }
}
