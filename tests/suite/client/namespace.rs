//! Name spaces: two services on one store share nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tower_distributed_lock::store::ListQuery;
use tower_distributed_lock::{
    LockAdmin, LockClient, LockError, LockKey, MemoryStore, RedisStore, Resource,
};

use crate::support::{RedisServer, Site};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const ORDERS: Resource = Resource::new("lock:ns-order");

async fn client(site: &Site, namespace: &str) -> LockClient {
    site.builder().await.namespace(namespace).build()
}

#[tokio::test]
async fn clients_of_different_name_spaces_share_no_lock_and_no_record() {
    for site in Site::all().await {
        let (shop, stock) = (
            client(&site, "prod-shop").await,
            client(&site, "prod-stock").await,
        );
        let (second, plain) = (client(&site, "prod-shop").await, site.client().await);
        let held = shop.lock(ORDERS.id(1)).await.unwrap();
        assert_eq!(held.key().as_str(), "prod-shop:lock:ns-order:1");
        assert_eq!(held.key().name(), "lock:ns-order:1");
        for other in [&stock, &plain] {
            let free = other.lock(ORDERS.id(1)).wait(Duration::ZERO).await;
            free.unwrap().release().await.unwrap();
        }
        // The same name space; the same key of the store; a key that has the name space already.
        for (locks, key) in [
            (&second, LockKey::from(ORDERS.id(1))),
            (&plain, LockKey::new("prod-shop:lock:ns-order:1")),
            (&second, held.key().clone()),
        ] {
            let busy = locks
                .lock(key)
                .mode(tower_distributed_lock::LockMode::Write);
            let busy = busy.wait(Duration::ZERO).await;
            assert!(
                matches!(busy, Err(LockError::Busy { .. })),
                "{}: {busy:?}",
                site.name()
            );
        }
        let seen = shop.admin().unwrap().inspect(ORDERS.id(1)).await.unwrap();
        assert!(seen.is_held());
        assert!(
            !stock
                .admin()
                .unwrap()
                .inspect(ORDERS.id(1))
                .await
                .unwrap()
                .is_held()
        );
        if site.lists() {
            let admin = site.admin().await.namespace("prod-shop");
            let list = admin
                .locks(&ListQuery::new().prefix("lock:ns").limit(1000))
                .await
                .unwrap();
            let [entry] = &list.entries[..] else {
                panic!("{}: {list:?}", site.name());
            };
            assert_eq!(entry.key.to_string(), "lock:ns-order:1");
            assert_eq!(serde_json::to_value(&entry.key).unwrap(), "lock:ns-order:1");
        }
        held.release().await.unwrap();
        several(&shop).await;
        if site.keeps_records() {
            records(&shop, &stock).await;
        }
    }
}

/// All of several keys, any of several, with a hash tag of their own.
async fn several(shop: &LockClient) {
    let keys = ["{ns}.a", "{ns}.b", "lock:ns-plain"];
    let all = shop.lock_all(keys).await.unwrap();
    let names: Vec<_> = all.keys().map(|key| key.name().to_owned()).collect();
    assert_eq!(names, ["lock:ns-plain", "{ns}.a", "{ns}.b"]);
    let none = shop.lock_any(keys).wait(Duration::ZERO).await;
    assert!(matches!(none, Err(LockError::Busy { .. })));
    all.release().await.unwrap();
    let any = shop.lock_any(keys).wait(Duration::ZERO).await.unwrap();
    assert!(any.key().as_str().starts_with("prod-shop:"));
    any.release().await.unwrap();
}

async fn records(shop: &LockClient, stock: &LockClient) {
    for locks in [shop, stock] {
        let done = locks
            .lock("ns:nightly")
            .once(DAY, async |_| Ok::<_, LockError>(1));
        assert!(!done.await.unwrap().replayed);
    }
    for locks in [shop, stock] {
        let admin = locks.admin().unwrap();
        let list = admin
            .records(&ListQuery::new().prefix("ns:").limit(1000))
            .await
            .unwrap();
        assert_eq!(list.entries.len(), 1);
        assert_eq!(list.entries[0].key.name(), "ns:nightly");
        assert!(admin.record("ns:nightly").await.unwrap().is_some());
        assert!(admin.forget_record("ns:nightly").await.unwrap());
    }
}

#[tokio::test]
async fn a_user_whose_rights_end_with_the_name_space_takes_its_locks_and_no_other() {
    let server = RedisServer::start().await;
    let rules = RedisStore::acl_rules(["lock:", "ns:"])
        .namespace("prod-shop")
        .admin();
    let address = server.user("locks", &rules).await;
    let store = RedisStore::connect(address).await.unwrap();
    let shop = LockClient::builder(store.clone())
        .namespace("prod-shop")
        .build();
    shop.lock("lock:k")
        .fenced()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let done = shop
        .lock("ns:nightly")
        .once(DAY, async |_| Ok::<_, LockError>(1));
    done.await.unwrap();
    for key in server.dump().await.into_keys() {
        assert!(key.contains("prod-shop:"), "{key}");
    }
    for other in [
        LockClient::new(store.clone()),
        LockClient::builder(store).namespace("prod-stock").build(),
    ] {
        let refused = other.lock("lock:k").await;
        assert!(
            matches!(refused, Err(LockError::Unavailable(_))),
            "{refused:?}"
        );
    }
}

/// Otherwise an admin breaks the lock of another service, and leaves the one that was meant.
#[tokio::test]
async fn a_key_of_another_name_space_is_refused_and_nothing_else_is_touched() {
    for site in Site::all().await {
        let (shop, stock) = (
            client(&site, "prod-shop").await,
            client(&site, "prod-stock").await,
        );
        let clients = [shop, stock, site.client().await];
        let mut held = Vec::new();
        for locks in &clients {
            held.push(locks.lock(ORDERS.id(7)).await.unwrap());
        }
        for (here, locks) in clients.iter().enumerate() {
            let admin = locks.admin().unwrap();
            for (there, guard) in held.iter().enumerate() {
                if here == there {
                    assert!(admin.inspect(guard.key()).await.unwrap().is_held());
                    continue;
                }
                for key in [guard.key().clone(), guard.key().tenant("acme")] {
                    refused(&site, admin.inspect(&key).await);
                    refused(&site, admin.force_unlock(&key).await);
                    refused(&site, admin.set_permits(&key, 1).await);
                    refused(&site, admin.clear_permit_limit(&key).await);
                    refused(&site, admin.record(&key).await);
                    refused(&site, admin.forget_record(&key).await);
                    refused(&site, locks.lock(&key).await);
                    refused(&site, locks.try_lock(&key).await);
                    refused(&site, locks.lock_all([LockKey::new("ns-free"), key]).await);
                }
            }
        }
        for guard in held {
            guard.release().await.unwrap();
        }
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(site: &Site, answer: Result<T, LockError>) {
    let is_invalid = matches!(answer, Err(LockError::Invalid(_)));
    assert!(is_invalid, "{}: {answer:?}", site.name());
}

#[tokio::test]
async fn a_key_that_an_admin_lists_is_refused_by_another_name_space() {
    let store = MemoryStore::new();
    let shop = LockClient::builder(store.clone())
        .namespace("prod-shop")
        .build();
    let guard = shop.lock("lock:nightly").await.unwrap();
    let plain = LockAdmin::new(store.clone());
    let listed = plain
        .locks(&ListQuery::new())
        .await
        .unwrap()
        .entries
        .remove(0)
        .key;
    assert_eq!(listed.name(), "prod-shop:lock:nightly");
    assert!(plain.inspect(&listed).await.unwrap().is_held());
    let refused = shop.admin().unwrap().force_unlock(listed).await;
    assert!(matches!(refused, Err(LockError::Invalid(_))), "{refused:?}");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn no_name_space_begins_another() {
    let store = MemoryStore::new();
    let client = |namespace: &str| {
        LockClient::builder(store.clone())
            .namespace(namespace)
            .build()
    };
    let (one, two) = (client("test:"), client("test::"));
    let guard = two.lock("x").await.unwrap();
    assert_eq!(guard.key().as_str(), "test::x");
    let refused = one.lock(":x").await;
    assert!(matches!(refused, Err(LockError::Invalid(_))), "{refused:?}");
    let listed = one.admin().unwrap().locks(&ListQuery::new()).await.unwrap();
    assert!(listed.entries.is_empty(), "{listed:?}");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_name_space_ends_as_the_prefixes_of_others_do() {
    for (text, whole) in [
        ("app", "app:x"),
        ("app:", "app:x"),
        ("app.", "app.x"),
        ("test::", "test::x"),
        ("{app}:", "{app}:x"),
        ("{app}", "{app}:x"),
        ("eu/app", "eu/app:x"),
    ] {
        let builder = LockClient::builder(MemoryStore::new()).namespace(text);
        let guard = builder.build().lock("x").await.unwrap();
        assert_eq!((guard.key().as_str(), guard.key().name()), (whole, "x"));
    }
}

#[test]
fn a_name_space_that_would_change_the_meaning_of_names_is_refused() {
    let long = "x".repeat(65);
    for name in [
        "",
        ":",
        "prod:shop",
        "prod.shop",
        "{tag",
        "a{tag}",
        "{}",
        "{a:b}",
        "a b",
        "a\n",
        "é",
        &long,
    ] {
        let builder = LockClient::builder(MemoryStore::new()).namespace(name);
        assert!(
            catch_unwind(AssertUnwindSafe(|| builder.build())).is_err(),
            "{name:?}"
        );
    }
}
