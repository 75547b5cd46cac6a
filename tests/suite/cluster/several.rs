//! Several keys: in one script if they share a slot, otherwise one after the other.

use std::time::Duration;

use tower_distributed_lock::{LockClient, LockError};

use super::{beginning, sent, shared, watch};

#[tokio::test]
async fn keys_of_one_slot_are_taken_by_one_script_and_others_one_by_one() {
    let (cluster, store) = shared().await;
    let beginning = beginning();
    let locks = LockClient::new(store);
    let together: Vec<_> = (0..3).map(|n| format!("{{{beginning}}}{n}")).collect();
    let mut apart = Vec::new();
    for node in 0..3 {
        apart.push(cluster.name_on(node, &format!("{beginning}x")).await);
    }
    for (keys, scripts) in [(&together, 1), (&apart, 3)] {
        let taken = || locks.lock_all(keys.clone());
        // The servers learn the scripts.
        taken().await.unwrap().release().await.unwrap();

        let monitors = watch(cluster).await;
        let all = taken().await.unwrap();
        let sent = sent(&monitors, &beginning).await;
        assert_eq!(sent.concat().len(), scripts, "{sent:#?}");
        assert_eq!(cluster.dump(&beginning).await.len(), 3);
        for key in keys {
            let busy = locks.lock(key).wait(Duration::ZERO).await;
            assert!(matches!(busy, Err(LockError::Busy { .. })));
        }
        all.release().await.unwrap();
        assert!(cluster.dump(&beginning).await.is_empty());

        // All or nothing, whichever key is taken.
        let stranger = LockClient::new(super::store(cluster).await);
        for key in keys {
            let taken = stranger.lock(key).await.unwrap();
            let refused = locks.lock_all(keys.clone()).wait(Duration::ZERO).await;
            assert!(matches!(refused, Err(LockError::Busy { .. })));
            taken.release().await.unwrap();
            let free = locks.lock_all(keys.clone()).await.unwrap();
            free.release().await.unwrap();
        }

        // Any of them, until no key is left.
        let mut segments = Vec::new();
        for _ in keys {
            segments.push(
                locks
                    .lock_any(keys.clone())
                    .wait(Duration::ZERO)
                    .await
                    .unwrap(),
            );
        }
        let none = locks.lock_any(keys.clone()).wait(Duration::ZERO).await;
        assert!(matches!(none, Err(LockError::Busy { .. })));
        let waiting = tokio::spawn(locks.lock_any(keys.clone()).wait(super::LIMIT).acquire());
        segments.pop().unwrap().release().await.unwrap();
        segments.push(waiting.await.unwrap().unwrap());
        for segment in segments {
            segment.release().await.unwrap();
        }
    }
}
