//! The end of a client.

use super::*;

const LIMIT: Duration = Duration::from_secs(5);

/// Other clients get the locks at once, although the guards still exist.
pub async fn a_client_that_ends_releases_its_locks(env: &Env, mode: LockMode) {
    let locks = env.client().await;
    let owner = Owner::new();
    let outer = locks.lock(KEY).mode(mode).owner(&owner).await.unwrap();
    let inner = locks.lock(KEY).mode(mode).owner(&owner).await.unwrap();
    let other = locks.lock("other").mode(mode).await.unwrap();
    let next = env.waiter(rival(mode)).await;
    locks.shutdown(LIMIT).await.unwrap();
    next.promptly().await.release().await.unwrap();
    assert!(outer.is_lost() && inner.is_lost() && other.is_lost());
    timeout(env.prompt(), other.lost()).await.unwrap();
    assert_err!(outer.release().await, Lost);
    drop((inner, other));
}

pub async fn a_client_that_ends_refuses_its_waiters(env: &Env, mode: LockMode) {
    let locks = env.client().await;
    let (holder, other) = (env.client().await, env.client().await);
    for (holder, ending) in [(&locks, &locks), (&holder, &other)] {
        let guard = holder.lock(KEY).mode(rival(mode)).await.unwrap();
        let mut waiters = Vec::new();
        for _ in 0..8 {
            waiters.push(Waiter::queue(env, ending.lock(KEY).mode(mode)).await);
        }
        for several in [ending.lock_all([KEY, "other"]), ending.lock_any([KEY])] {
            waiters.push(Waiter::begin(env, several.mode(mode)).await);
        }
        ending.shutdown(LIMIT).await.unwrap();
        for waiter in waiters {
            let outcome = timeout(env.prompt(), waiter.outcome()).await;
            assert_err!(outcome.unwrap(), Shutdown);
        }
        drop(guard);
        env.store_is_empty().await;
    }
}

pub async fn a_client_that_has_ended_refuses_requests(env: &Env, mode: LockMode) {
    let locks = env.client().await;
    locks.shutdown(LIMIT).await.unwrap();
    locks.shutdown(LIMIT).await.unwrap();
    let questions = env.calls.questions();
    for asking in [
        locks.lock(KEY),
        locks.lock_all([KEY, "other"]),
        locks.lock_any([KEY]),
    ] {
        assert_err!(asking.mode(mode).await, Shutdown);
    }
    assert_eq!(env.calls.questions(), questions);
}

/// A request that is granted while the client ends is refused or given back; afterwards the store has no
/// hold.
pub async fn no_hold_is_left_after_the_end(env: &Env, mode: LockMode) {
    for micros in (0..6000).step_by(500) {
        let locks = env.client().await;
        let asking = [
            locks.lock(KEY),
            locks.lock_all(["a", "b"]),
            locks.lock_any(["y", "z"]),
        ];
        let asking = asking.map(|asking| tokio::spawn(asking.mode(mode).into_future()));
        sleep(Duration::from_micros(micros)).await;
        locks.shutdown(LIMIT).await.unwrap();
        // The guards, if there are any, still exist.
        env.store_is_empty().await;
        for asking in asking {
            match asking.await.unwrap() {
                Ok(guard) => assert!(guard.is_lost()),
                Err(error) => assert!(matches!(error, LockError::Shutdown), "{error}"),
            }
        }
    }
}
