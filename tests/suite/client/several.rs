//! Several keys in one request.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tower_distributed_lock::{LockClient, LockError, LockMode, MemoryStore};

const SECOND: Duration = Duration::from_secs(1);

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

/// Both keys are busy until the request takes them one after the other. Then the second is in use for a minute.
#[tokio::test(start_paused = true)]
async fn a_request_for_several_keys_keeps_no_free_key_from_others_for_longer_than_a_second() {
    let store = MemoryStore::new();
    let client = || LockClient::new(store.clone());
    let began = Instant::now();
    let busy = ["a", "a", "b", "b"].map(|key| {
        let locks = client();
        tokio::spawn(async move {
            while began.elapsed() < 20 * SECOND {
                let guard = locks.lock(key).await.expect("its turn");
                sleep(SECOND / 3).await;
                guard.release().await.expect("held");
            }
        })
    });
    let both = tokio::spawn(client().lock_all(["a", "b"]).wait(600 * SECOND).acquire());
    sleep(19 * SECOND).await;
    let long = client();
    let long = tokio::spawn(async move {
        let guard = long.lock("b").wait(600 * SECOND).await.expect("its turn");
        sleep(60 * SECOND).await;
        guard.release().await.expect("held");
    });
    for task in busy {
        task.await.expect("no panic");
    }
    let third = client();
    for _ in 0..20 {
        let asked = Instant::now();
        let free = third.lock("a").wait(600 * SECOND).await.expect("free");
        let waited = asked.elapsed();
        assert!(waited < 3 * SECOND / 2, "{waited:?}");
        free.release().await.expect("held");
        sleep(SECOND / 2).await;
    }
    long.await.expect("no panic");
    let both = timeout(30 * SECOND, both).await.expect("free");
    both.unwrap().expect("free").release().await.expect("held");
}
