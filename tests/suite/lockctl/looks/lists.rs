//! `lockctl ls`.

use std::time::Duration;

use super::*;
use crate::support::RedisCluster;

fn keys(listed: &Value) -> Vec<&str> {
    let locks = listed["locks"].as_array().expect("a list");
    locks
        .iter()
        .map(|lock| lock["key"].as_str().expect("text"))
        .collect()
}

#[tokio::test]
async fn locks_are_listed_by_a_pattern_among_other_data() {
    let redis = RedisServer::start().await;
    for n in 0..2000 {
        let () = redis
            .ask(&["HSET", &format!("order:data:{n}"), "field", "1"])
            .await;
    }
    let locks = client(&redis).await;
    let mut guards = Vec::new();
    for key in ["order:2", "order:1", "order:{3}:a", "cart:1"] {
        guards.push(locks.lock(key).await.expect("it is free"));
    }
    for (pattern, expected) in [
        ("order:*", &["order:1", "order:2", "order:{3}:a"][..]),
        ("order:?", &["order:1", "order:2"]),
        ("*:1", &["cart:1", "order:1"]),
        ("cart:1", &["cart:1"]),
        ("none:*", &[]),
    ] {
        let listed = parsed(&looked(&redis, &["ls", "--match", pattern, "--json"]).await);
        assert_eq!(keys(&listed), expected, "{pattern}");
        assert_eq!(listed["truncated"], false);
        let table = looked(&redis, &["ls", "--match", pattern]).await.out;
        let rows: Vec<_> = table
            .lines()
            .skip(1)
            .map(|row| row.split(' ').next())
            .collect();
        let rows: Vec<_> = rows.into_iter().flatten().collect();
        assert_eq!(rows, expected, "{table}");
    }
    let some = looked(&redis, &["ls", "--limit", "2", "--json"]).await;
    let some = parsed(&some);
    assert_eq!((keys(&some).len(), &some["truncated"]), (2, &json!(true)));
    let some = looked(&redis, &["ls", "--limit", "2"]).await;
    assert_eq!(some.out.lines().count(), 3, "{some:?}");
    assert!(some.err.contains("there are more"), "{some:?}");
    for guard in guards {
        guard.release().await.expect("it was held");
    }
}

#[tokio::test]
async fn keys_with_permits_are_listed_beside_locks() {
    let redis = RedisServer::start().await;
    let locks = client(&redis).await;
    let mut guards = vec![locks.lock("mail:lock").await.expect("it is free")];
    for key in ["mail:apple", "mail:{pear}:x"] {
        for _ in 0..2 {
            guards.push(locks.lock(key).permits(3).await.expect("one is free"));
        }
    }
    let expected = ["mail:apple", "mail:lock", "mail:{pear}:x"];
    let listed = parsed(&looked(&redis, &["ls", "--match", "mail:*", "--json"]).await);
    assert_eq!(keys(&listed), expected);
    let permits = &listed["locks"][0];
    assert_eq!(permits["limit"], 3);
    assert_eq!(permits["holders"].as_array().map(Vec::len), Some(2));
    assert_eq!(permits["holders"][0]["mode"], "permit");
    let table = looked(&redis, &["ls", "--match", "mail:apple"]).await.out;
    assert!(
        table.contains("permit") && table.contains("and 1 more"),
        "{table}"
    );
    for guard in guards {
        guard.release().await.expect("it was held");
    }
    let listed = parsed(&looked(&redis, &["ls", "--json"]).await);
    assert_eq!(
        listed,
        json!({"locks": [], "truncated": false, "left_out": []})
    );
}

#[tokio::test]
async fn locks_and_permits_on_every_server_of_a_cluster_are_listed() {
    let cluster = RedisCluster::shared().await;
    let store = RedisStore::cluster(cluster.urls()).connect().await;
    let locks = LockClient::new(store.expect("it is whole"));
    let mut keys: Vec<_> = (0..30).map(|n| format!("lockctl:ls:{n:02}")).collect();
    let guard = locks.lock_all(&keys).await.expect("they are free");
    let with_permits: Vec<_> = (30..50).map(|n| format!("lockctl:ls:{n:02}")).collect();
    let permits = locks.lock_all(&with_permits).permits(2);
    let permits = permits.await.expect("they are free");
    keys.extend(with_permits);
    let url = cluster.urls().join(",");
    let arguments = ["ls", "--cluster", "--match", "lockctl:ls:*", "--json"];
    let listed = parsed(&done(lockctl(&url, &arguments)).await);
    assert_eq!(self::keys(&listed), keys);
    guard.release().await.expect("they were held");
    permits.release().await.expect("they were held");
}

#[tokio::test]
async fn a_name_space_is_listed_under_the_names_of_its_service() {
    let redis = RedisServer::start().await;
    let store = RedisStore::connect(redis.url()).await.expect("it runs");
    let locks = LockClient::builder(store).namespace("prod-shop").build();
    let guard = locks.lock("order:42").await.expect("it is free");
    let other = client(&redis).await.lock("order:7").await;
    let job = locks.lock("job:{42}:a");
    let done = job.once(Duration::from_secs(60), async |_| Ok::<_, ()>(1));
    assert!(done.await.is_ok());
    for (pattern, records, expected) in [
        ("*", false, &["order:42"][..]),
        ("order:*", false, &["order:42"]),
        ("prod-*", false, &[]),
        ("job:*", true, &["job:{42}:a"]),
        ("prod-*", true, &[]),
    ] {
        let mut arguments = vec!["ls", "--namespace", "prod-shop", "--match", pattern];
        arguments.extend(records.then_some("--records"));
        let table = looked(&redis, &arguments).await.out;
        let rows = table.lines().skip(1).map(|row| row.split(' ').next());
        let rows: Vec<_> = rows.flatten().collect();
        assert_eq!(rows, expected, "{pattern}: {table}");
    }
    guard.release().await.expect("it was held");
    other.expect("it is free").release().await.expect("held");
}
