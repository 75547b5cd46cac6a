//! `RedisStore` with replicas that acknowledge, and with replicas that do not.

mod acknowledged;
mod demoted;
mod isolated;
mod unacknowledged;

use std::time::Duration;

use tower_distributed_lock::RedisStore;
use tower_distributed_lock::error::{StoreError, StoreErrorKind};

use crate::support::Replicated;

const LIMIT: Duration = Duration::from_secs(60);

/// How long the store waits for silent replicas.
const SHORT: Duration = Duration::from_millis(300);

/// A store on the master, with a long limit for live replicas.
async fn store(replicated: &Replicated, replicas: usize) -> RedisStore {
    patient_store(replicated, replicas, Duration::from_secs(30)).await
}

async fn patient_store(replicated: &Replicated, replicas: usize, timeout: Duration) -> RedisStore {
    RedisStore::builder(replicated.master().url())
        .replicas(replicas)
        .replica_timeout(timeout)
        .connect()
        .await
        .unwrap()
}

fn is_unacknowledged<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unacknowledged, "{error:?}");
}
