//! Rights that change while a store is connected.

use super::*;

#[tokio::test]
async fn a_right_that_is_granted_later_is_noticed() {
    let rules = RedisStore::acl_rules(["k"]);
    let server = server_with(&rules).await;
    without(&server, &rules, "+pexpire").await;
    let store = RedisStore::builder(address(&server))
        .connect_lazy()
        .unwrap();
    let hold = attempt("k", LockMode::Write);
    assert_eq!(missing(&error(&store, &hold).await), ["+pexpire"]);
    without(&server, &rules, "").await;
    eventually("the store works", LIMIT, async || {
        store.acquire(&hold).await
    })
    .await;
}

#[tokio::test]
async fn a_right_that_is_taken_away_while_connected_leaves_no_lock_that_stays_for_ever() {
    for forbidden in ["pexpire", "set", "hset"] {
        let server = server_with("~* &* +@all").await;
        let store = RedisStore::connect(address(&server)).await.unwrap();
        let mut redis = server.connection().await;
        acl(&mut redis, &["SETUSER", "locks", &format!("-{forbidden}")]).await;
        for mode in MODES {
            if forbidden == "set" && mode != LockMode::Read {
                continue;
            }
            let kind = error_kind(&store, &attempt("k", mode)).await;
            assert_eq!(kind, StoreErrorKind::Refused);
            let dump = server.dump().await;
            assert!(dump.values().all(|entry| entry.ttl.is_some()), "{dump:?}");
            assert!(!dump.contains_key("k"));
        }
    }
}

#[tokio::test]
async fn a_deleted_user_is_refused_until_it_is_there_again() {
    let rules = RedisStore::acl_rules(["k"]);
    let server = server_with(&rules).await;
    let store = RedisStore::connect(address(&server)).await.unwrap();
    let waiter = patient("k", LockMode::Reentrant);
    let mut wakeups = store.subscribe(&waiter).await.unwrap();
    acl(&mut server.connection().await, &["DELUSER", "locks"]).await;
    eventually("the user is refused", LIMIT, async || {
        let error = store.acquire(&waiter).await.err()?;
        (error.kind() == StoreErrorKind::Refused).then_some(())
    })
    .await;
    without(&server, &rules, "").await;
    woken(&mut wakeups).await;
    eventually("the store works", LIMIT, async || {
        store.acquire(&waiter).await
    })
    .await;
}

#[tokio::test]
async fn a_password_that_changes_shows_at_the_next_connection() {
    let rules = RedisStore::acl_rules(["k"]);
    let server = server_with(&rules).await;
    let store = RedisStore::connect(address(&server)).await.unwrap();
    let mut redis = server.connection().await;
    acl(&mut redis, &["SETUSER", "locks", "resetpass", ">another"]).await;
    let hold = attempt("k", LockMode::Reentrant);
    assert!(asks(&store, &hold).await && releases(&store, &hold).await);
    let kill = redis::cmd("CLIENT")
        .arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"])
        .to_owned();
    kill.exec_async(&mut redis).await.unwrap();
    eventually("the password is refused", LIMIT, async || {
        let error = store.acquire(&hold).await.err()?;
        (error.kind() == StoreErrorKind::Refused).then_some(())
    })
    .await;
    acl(&mut redis, &["SETUSER", "locks", ">secret"]).await;
    eventually("the store works", LIMIT, async || {
        store.acquire(&hold).await
    })
    .await;
}
