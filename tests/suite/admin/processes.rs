//! Holders with the process that they belong to.

use std::time::Duration;

use tower_distributed_lock::store::{Inspect, ListQuery, ProcessInfo};
use tower_distributed_lock::{LockAdmin, LockClient, LockMode, MemoryStore, RedisStore};

use crate::background::runtimes::runtime;
use crate::support::{RedisServer, Site, eventually};

const LIMIT: Duration = Duration::from_secs(30);

/// The process of the only holder of a key.
async fn process(admin: &LockAdmin, key: &str) -> Option<ProcessInfo> {
    let inspection = admin.inspect(key).await.unwrap();
    let [holder] = &inspection.holders[..] else {
        panic!("one holder: {inspection:?}");
    };
    holder.process.clone()
}

/// The process of the only holder of a key, when it has announced itself.
async fn announced(admin: &LockAdmin, key: &str) -> ProcessInfo {
    eventually("the process is known", LIMIT, async || {
        process(admin, key).await
    })
    .await
}

fn is_here(process: &ProcessInfo, label: &str) -> bool {
    !process.host.is_empty() && process.pid == std::process::id() && process.label == label
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_is_shown_with_its_process_on_every_store() {
    // A quorum keeps no entries of processes.
    let sites = Site::all().await.into_iter();
    for site in sites.filter(|site| !matches!(site, Site::Quorum(_))) {
        let what = site.name();
        let named = site.builder().await.announce("orders-api").build();
        let silent = site.client().await;
        let admin = site.admin().await;
        let keys = ["lock:process:named", "lock:process:silent"];
        let held = named.lock(keys[0]).mode(LockMode::Read).await.unwrap();
        let other = silent.lock(keys[1]).await.unwrap();

        assert!(
            is_here(&announced(&admin, keys[0]).await, "orders-api"),
            "{what}"
        );
        assert_eq!(process(&admin, keys[1]).await, None, "{what}");
        if site.lists() {
            let page = admin.locks(&ListQuery::new().prefix("lock:process:")).await;
            let mut entries = page.unwrap().entries;
            entries.sort_by(|a, b| a.key.cmp(&b.key));
            let holders = entries.iter().flat_map(|entry| &entry.inspection.holders);
            let shown: Vec<_> = holders.map(|holder| holder.process.is_some()).collect();
            assert_eq!(shown, [true, false], "{what}");
        }

        let json = serde_json::to_value(admin.inspect(keys[0]).await.unwrap()).unwrap();
        let shown = &json["holders"][0]["process"];
        assert_eq!(shown["pid"], std::process::id(), "{what}");
        assert_eq!(shown["label"], "orders-api", "{what}");
        let json = serde_json::to_value(admin.inspect(keys[1]).await.unwrap()).unwrap();
        assert_eq!(json["holders"][0].get("process"), None, "{what}");

        other.release().await.unwrap();
        held.release().await.unwrap();
        named.shutdown(LIMIT).await.unwrap();
    }
}

#[tokio::test]
async fn an_entry_does_not_depend_on_the_name_space() {
    let store = MemoryStore::new();
    let builder = LockClient::builder(store.clone()).namespace("prod-shop");
    let shop = builder.announce("shop").build();
    let held = shop.lock("lock:k").await.unwrap();
    let inside = announced(&shop.admin().unwrap(), "lock:k").await;
    let outside = announced(&LockAdmin::new(store), "prod-shop:lock:k").await;
    assert!(is_here(&inside, "shop") && inside == outside);
    held.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_entry_lives_as_long_as_its_client() {
    let store = MemoryStore::new();
    let admin = LockAdmin::new(store.clone());
    for shuts_down in [true, false] {
        let locks = LockClient::builder(store.clone()).announce("api").build();
        let guard = locks.lock("k").await.unwrap();
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert!(process(&admin, "k").await.is_some());
        }
        let id = locks.id();
        guard.release().await.unwrap();
        if shuts_down {
            locks.shutdown(LIMIT).await.unwrap();
            assert_eq!(store.processes(&[id]).await.unwrap(), [None]);
            assert!(locks.lock("k").await.is_err());
        }
        drop(locks);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(store.processes(&[id]).await.unwrap(), [None]);
    }
}

#[test]
fn an_entry_of_a_process_that_died_expires() {
    let store = MemoryStore::new();
    let locks = LockClient::builder(store.clone()).announce("api").build();
    let id = locks.id();
    let known = async || store.processes(&[id]).await.unwrap()[0].is_some();
    // All tasks of a process that dies end.
    let first = runtime();
    first.block_on(async {
        drop(locks.lock("k").await.unwrap());
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(known().await);
    });
    drop(first);
    runtime().block_on(async {
        tokio::time::sleep(Duration::from_secs(10 * 60)).await;
        assert!(!known().await);
    });
}

/// One `SET` a minute, whatever the number of requests; nothing without a label.
#[tokio::test]
async fn a_request_costs_nothing_more() {
    let server = RedisServer::start().await;
    let store = RedisStore::connect(server.url()).await.unwrap();
    let silent = LockClient::new(store.clone());
    silent.lock("k").await.unwrap().release().await.unwrap();
    let entries = async || {
        let keys = server.dump().await.into_keys();
        keys.filter(|key| key.starts_with("tower_lock_process:"))
            .count()
    };
    assert_eq!(entries().await, 0);

    let locks = LockClient::builder(store).announce("api").build();
    let guard = locks.lock("k").await.unwrap();
    announced(&locks.admin().unwrap(), "k").await;
    let dump = server.dump().await;
    let entry = &dump[&format!("tower_lock_process:{}", locks.id())];
    assert!(entry.ttl.is_some(), "{entry:?}");
    guard.release().await.unwrap();
    let mut delete = redis::cmd("DEL");
    delete.arg(format!("tower_lock_process:{}", locks.id()));
    let mut redis = server.connection().await;
    delete.exec_async(&mut redis).await.unwrap();
    for _ in 0..100 {
        locks.lock("k").await.unwrap().release().await.unwrap();
    }
    assert_eq!(entries().await, 0, "the next renewal is due in a minute");
    locks.shutdown(LIMIT).await.unwrap();
}

/// Entries need a right of their own. Without it, the locks work.
#[tokio::test]
async fn a_user_without_the_right_takes_locks_and_is_not_shown() {
    let server = RedisServer::start().await;
    let rules = RedisStore::acl_rules(["k"]);
    let may_announce = rules.clone().announce();
    let mute = server.user("mute", &rules).await;
    let named = server.user("named", &may_announce).await;
    let admin = LockAdmin::new(RedisStore::connect(server.url()).await.unwrap());
    let refused = async || {
        let mut log = redis::cmd("ACL");
        let mut redis = server.connection().await;
        let log: Vec<redis::Value> = log.arg("LOG").query_async(&mut redis).await.unwrap();
        log.len()
    };
    for (user, address) in [("named", named), ("mute", mute)] {
        assert_eq!(refused().await, 0);
        let store = RedisStore::connect(address).await.unwrap();
        let locks = LockClient::builder(store).announce("api").build();
        let guard = locks.lock("k").await.unwrap();
        match user {
            "named" => assert!(is_here(&announced(&admin, "k").await, "api")),
            _ => {
                eventually("the entry is refused", LIMIT, async || refused().await > 0).await;
                assert_eq!(process(&admin, "k").await, None);
            }
        }
        guard.release().await.unwrap();
        locks.shutdown(LIMIT).await.unwrap();
        assert_eq!(server.dump().await, Default::default(), "{user}");
    }
}

/// The oldest holds have a route in the entry; the newest are left out of it.
#[tokio::test(start_paused = true)]
async fn a_hold_that_lives_for_some_seconds_is_shown_with_its_route() {
    let store = MemoryStore::new();
    let admin = LockAdmin::new(store.clone());
    let locks = LockClient::builder(store).announce("api").build();
    let mut held = Vec::new();
    for n in 0..70 {
        let request = locks.lock(format!("k{n}")).label("nightly");
        held.push(request.await.unwrap());
    }
    tokio::time::sleep(Duration::from_secs(21)).await;
    let route = async |key: &str| admin.inspect(key).await.unwrap().holders[0].route.clone();
    assert_eq!(route("k0").await.as_deref(), Some("nightly"));
    assert_eq!(route("k63").await.as_deref(), Some("nightly"));
    assert_eq!(route("k64").await, None);
    let inspection = admin.inspect("k0").await.unwrap();
    assert!(
        inspection.holders[0]
            .process
            .as_ref()
            .unwrap()
            .routes
            .is_empty()
    );
    let json = serde_json::to_value(inspection).unwrap();
    assert_eq!(json["holders"][0]["route"], "nightly");
    let json = serde_json::to_value(admin.inspect("k64").await.unwrap()).unwrap();
    assert_eq!(json["holders"][0].get("route"), None);

    drop(held);
    tokio::time::sleep(Duration::from_secs(21)).await;
    let _next = locks.lock("k0").await.unwrap();
    assert_eq!(route("k0").await, None, "another hold has another number");
}

#[tokio::test]
async fn the_route_of_a_hold_is_read_from_the_entry_in_redis() {
    let server = RedisServer::start().await;
    let store = RedisStore::connect(server.url()).await.unwrap();
    let locks = LockClient::new(store.clone());
    let _write = locks.lock("k").mode(LockMode::Write).await.unwrap();
    let admin = locks.admin().unwrap();
    let id = admin.inspect("k").await.unwrap().holders[0].id.clone();
    let number = id.split(':').nth(1).unwrap().parse().unwrap();
    let mut process = ProcessInfo::new("pod-1", 7, "orders");
    process.routes.insert(number, "/orders/{id}".to_owned());
    store.announce(locks.id(), &process, LIMIT).await.unwrap();
    let [holder] = &admin.inspect("k").await.unwrap().holders[..] else {
        panic!("one holder");
    };
    assert_eq!(holder.route.as_deref(), Some("/orders/{id}"));
    assert_eq!(holder.process, Some(ProcessInfo::new("pod-1", 7, "orders")));
}
