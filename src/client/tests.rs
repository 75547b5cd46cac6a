//! How many mutexes a request takes.

use super::LockClient;
use crate::store::memory::MemoryStore;
use crate::sync::LOCKED;

/// The memory store takes one to grant, and one to release, which are not counted.
const OF_THE_STORE: usize = 2;

#[tokio::test]
async fn a_free_pair_in_memory_takes_five_mutexes() {
    let locks = LockClient::new(MemoryStore::new());
    let pair = async || {
        locks
            .lock("k")
            .await
            .expect("free")
            .release()
            .await
            .expect("held")
    };
    pair().await;
    let before = LOCKED.get();
    pair().await;
    let taken = LOCKED.get() - before + OF_THE_STORE;
    assert!(taken <= 5, "{taken}");
}

/// The mutexes of a pair are those of the key's shard: none is the client's. Another key of another shard takes others.
#[tokio::test]
async fn no_mutex_is_the_clients() {
    let locks = LockClient::new(MemoryStore::new());
    locks
        .lock("warm")
        .await
        .expect("free")
        .release()
        .await
        .expect("held");
    let core = &locks.inner.core;
    // While the client's other mutexes are held, a pair is granted and released.
    let _checks = core.agenda.checks.lock();
    let pair = async { locks.lock("k").await.expect("free").release().await };
    pair.await.expect("held");
}
