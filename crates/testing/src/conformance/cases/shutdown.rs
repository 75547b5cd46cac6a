//! The end of a client.

use super::*;

const LIMIT: Duration = Duration::from_secs(5);

/// Other clients get the locks at once, although the guards still exist.
pub async fn a_client_that_ends_releases_its_locks(env: &Harness) {
    let asking = env.here.owned();
    let outer = asking.clone().await.unwrap();
    let inner = asking.await.unwrap();
    let other = env.here.on("other").await.unwrap();
    let next = env.waits(env.elsewhere.rival()).await;
    env.here.shutdown(LIMIT).await.unwrap();
    next.serve_promptly().await;
    assert!(outer.is_lost() && inner.is_lost() && other.is_lost());
    timeout(env.prompt(), other.lost()).await.unwrap();
    assert_err!(outer.release().await, Lost);
    drop((inner, other));
}

pub async fn a_client_that_ends_refuses_its_waiters(env: &Harness) {
    let other = env.process().await;
    for (holder, ending) in [(&env.here, &env.here), (&env.elsewhere, &other)] {
        let guard = holder.rival().await.unwrap();
        let mut waiters = env.all_wait(vec![ending.request(); 8]).await;
        for several in [ending.all([KEY, "other"]), ending.any([KEY])] {
            waiters.push(env.waits_a_moment(several).await);
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

pub async fn a_client_that_has_ended_refuses_requests(env: &Harness) {
    env.here.shutdown(LIMIT).await.unwrap();
    env.here.shutdown(LIMIT).await.unwrap();
    for asking in [
        env.here.request(),
        env.here.all([KEY, "other"]),
        env.here.any([KEY]),
    ] {
        assert_err!(asking.await, Shutdown);
    }
    assert_eq!(env.asked().questions, 0);
}

/// A request that is granted while the client ends is refused or given back; afterwards the store has no
/// hold.
pub async fn no_hold_is_left_after_the_end(env: &Harness) {
    for micros in (0..6000).step_by(500) {
        let process = env.process().await;
        let asking = [
            process.request(),
            process.all(["a", "b"]),
            process.any(["y", "z"]),
        ];
        let asking = asking.map(|asking| tokio::spawn(asking.into_future()));
        sleep(Duration::from_micros(micros)).await;
        process.shutdown(LIMIT).await.unwrap();
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
