//! Lists of stores that fail, change, or show nothing.

use tokio::time::timeout;

use super::*;

#[tokio::test]
async fn a_cursor_of_another_store_is_refused_and_that_of_a_server_that_is_gone_goes_on() {
    let refused = |error: LockError| matches!(error, LockError::Unavailable(_));
    on_every_store(async |locks| {
        let admin = locks.admin().unwrap();
        for text in [
            "",
            "x",
            "x/y",
            "/",
            "x/17",
            "x/:17",
            "x/list:17",
            "x/hash:y",
        ] {
            let query = ListQuery::new().after(text.to_owned());
            let error = admin.locks(&query).await.unwrap_err();
            assert!(refused(error), "{text}");
        }
    })
    .await;
    let cluster = RedisCluster::shared().await;
    let store = RedisStore::cluster(cluster.urls()).connect().await.unwrap();
    let locks = LockClient::new(store);
    let admin = locks.admin().unwrap();
    let guard = locks.lock("lock:admin:gone").await.unwrap();
    let query = ListQuery::new().prefix("lock:admin:gone").limit(1000);
    let before = query.clone().after("0.0.0.0:1/zset:17".to_owned());
    assert_eq!(names(&admin, before).await, ["lock:admin:gone"]);
    let behind = query.after("~/hash:17".to_owned());
    let page = admin.locks(&behind).await.unwrap();
    assert_eq!((page.entries.len(), page.next), (0, None));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_quorum_shows_what_most_stores_carry_while_most_answer() {
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(RedisServer::start().await);
    }
    let stores = servers.iter().map(|server| {
        let lazily = RedisStore::builder(server.url()).connect_lazy();
        lazily.unwrap()
    });
    let stores: Vec<_> = stores.collect();
    let locks = LockClient::new(QuorumStore::new(stores.clone()).unwrap().inspected());
    let admin = locks.admin().unwrap();
    let guard = locks.lock("lock:q:all").await.unwrap();
    // A hold that is left on one store.
    let leftover = attempt("lock:q:one", LockMode::Reentrant);
    stores[0].acquire(&leftover).await.unwrap();

    let seen = admin.inspect("lock:q:all").await.unwrap();
    assert_eq!(seen.holders.len(), 1);
    assert!(!admin.inspect("lock:q:one").await.unwrap().is_held());
    for missing in [
        admin.locks(&ListQuery::new()).await.map(drop),
        admin.records(&ListQuery::new()).await.map(drop),
    ] {
        assert!(matches!(missing, Err(LockError::Unavailable(_))));
    }

    drop(servers.remove(0));
    assert!(admin.inspect("lock:q:all").await.unwrap().is_held());
    assert!(admin.force_unlock("lock:q:all").await.unwrap());
    assert!(!admin.force_unlock("lock:q:all").await.unwrap());
    assert!(!admin.inspect("lock:q:all").await.unwrap().is_held());
    drop(servers.remove(0));
    for error in [
        admin.inspect("lock:q:all").await.map(drop),
        admin.force_unlock("lock:q:all").await.map(drop),
    ] {
        assert!(matches!(error, Err(LockError::Unavailable(_))), "{error:?}");
    }
    drop(guard);
}

#[tokio::test]
async fn a_store_that_shows_nothing_says_so() {
    let store = || LimitedStore::new(Capabilities::all());
    let locks = LockClient::new(store());
    match locks.admin() {
        Err(LockError::Unsupported(missing)) => assert_eq!(missing.feature(), Feature::Inspection),
        other => panic!("{other:?}"),
    }
    let admin = LockAdmin::new(store());
    assert!(!admin.inspect("k").await.unwrap().is_held());
    for missing in [
        admin.locks(&ListQuery::new()).await.map(drop),
        admin.records(&ListQuery::new()).await.map(drop),
        admin.forget_record("k").await.map(drop),
    ] {
        let error = missing.unwrap_err();
        let LockError::Unavailable(error) = &error else {
            panic!("{error:?}");
        };
        assert_eq!(error.kind(), StoreErrorKind::Refused);
    }
}

/// A hash of the application looks like a lock, with a count that no lock has.
#[tokio::test]
async fn a_hash_with_an_odd_count_hides_no_lock_of_its_page() {
    let server = RedisServer::start().await;
    let store = RedisStore::connect(server.url()).await.unwrap();
    let locks = LockClient::new(store);
    let guard = locks.lock("lock:one").await.unwrap();
    let field = "00000000-0000-4000-8000-000000000000:1";
    let _: i64 = server
        .ask(&["HSET", "lock:odd", field, "12345678901234567890"])
        .await;
    let query = ListQuery::new().prefix("lock:");
    assert_eq!(names(&locks.admin().unwrap(), query).await, ["lock:one"]);
    guard.release().await.unwrap();
}

/// The field is public, and `ListQuery::limit` is not the only way to set it.
#[tokio::test]
async fn a_page_of_no_entries_is_a_page_of_one() {
    on_every_store(async |locks| {
        let guard = locks.lock("lock:admin:none").await.unwrap();
        let admin = locks.admin().unwrap();
        let mut query = ListQuery::new().prefix("lock:admin:none");
        query.limit = 0;
        let found = timeout(Duration::from_secs(10), names(&admin, query)).await;
        assert_eq!(found.expect("the list ends"), ["lock:admin:none"]);
        guard.release().await.unwrap();
    })
    .await;
}
