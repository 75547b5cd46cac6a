//! Several keys in one request.

use tower_distributed_lock::{LockClient, LockError, LockMode, MemoryStore};

/// The caller would believe that it holds both.
#[tokio::test]
async fn modes_of_one_key_that_contradict_each_other_are_refused() {
    let locks = LockClient::new(MemoryStore::new());
    for (one, other) in [
        (LockMode::Read, LockMode::permits(3)),
        (LockMode::Fair, LockMode::Write),
        (LockMode::permits(2), LockMode::permits(3)),
    ] {
        for all in [true, false] {
            let keys = [("k", one), ("other", LockMode::Fair), ("k", other)];
            let request = match all {
                true => locks.lock_all(keys),
                false => locks.lock_any(keys),
            };
            let refused = request.await;
            assert!(
                matches!(refused, Err(LockError::Invalid(_))),
                "{one:?} and {other:?}: {refused:?}"
            );
        }
    }
    let both = locks.lock_all([("k", LockMode::Read), ("k", LockMode::Write)]);
    let both = both.await.expect("a writer may read");
    assert_eq!(both.mode(), LockMode::Write);
    both.release().await.expect("held");
}
