//! Keys with permits in the lists.

use super::*;

#[tokio::test]
async fn every_key_with_permits_is_listed_once_with_its_holders() {
    on_every_store(async |locks| {
        let prefix = "lock:admin:permits:";
        let admin = locks.admin().unwrap();
        let mut expected = BTreeSet::new();
        let mut guards = Vec::new();
        let mut names_of = Vec::from_iter((0..12).map(|n| format!("{prefix}{n}")));
        names_of.extend((0..4).map(|n| format!("{prefix}a{{tag}}{n}")));
        names_of.push(format!("{prefix}*[{{x}}]"));
        for key in names_of {
            for _ in 0..2 {
                guards.push(locks.lock(&key).permits(3).await.unwrap());
            }
            expected.insert(key);
        }
        // Both have `{lock:admin:braces}:timeout` in Redis, and one of them is held.
        let braced = locks.lock("{lock:admin:braces}").permits(1);
        let braced = braced.await.unwrap();
        let lock = locks.lock(format!("{prefix}lock")).await.unwrap();
        expected.insert(format!("{prefix}lock"));
        let freed = locks.lock(format!("{prefix}freed")).permits(2);
        freed.await.unwrap().release().await.unwrap();

        each_is_listed_once(&admin, prefix, &expected, [1, 5, 1000]).await;
        let list = async |query: &ListQuery| admin.locks(query).await;
        let found = pages(ListQuery::new().prefix(format!("{prefix}7")), list).await;
        let entry = found.concat().remove(0);
        let holders = &entry.inspection.holders;
        assert!(
            holders
                .iter()
                .all(|holder| holder.mode == LockMode::permits(3))
        );
        assert_eq!((holders.len(), entry.inspection.limit), (2, Some(3)));
        let braces = ListQuery::new().prefix("{lock:admin:br");
        assert_eq!(names(&admin, braces).await, ["{lock:admin:braces}"]);
        let plain = ListQuery::new().prefix("lock:admin:br");
        assert_eq!(names(&admin, plain).await, [""; 0]);

        for guard in guards.into_iter().chain([braced, lock]) {
            guard.release().await.unwrap();
        }
        assert_eq!(
            names(&admin, ListQuery::new().prefix(prefix)).await,
            [""; 0]
        );
    })
    .await;
}

/// Sorted sets of the application, permits that have expired, and a lock beside the permits of an earlier program.
#[tokio::test]
async fn a_sorted_set_without_a_permit_that_is_held_is_not_listed() {
    let server = RedisServer::start().await;
    let mut redis = server.connection().await;
    let store = RedisStore::connect(server.url()).await.unwrap();
    let locks = LockClient::new(store);
    let far = 4_000_000_000_000_i64;
    for (key, ends) in [
        ("{data}:timeout", far),
        ("{text}:timeout", far),
        ("{past}:timeout", 1),
    ] {
        redis.zadd(key, "member", ends).await.unwrap();
    }
    redis.set("text", "seven").await.unwrap();
    redis.set("past", 0).await.unwrap();
    redis.zadd("{lock}:timeout", "member", far).await.unwrap();
    let guard = locks.lock("lock").await.unwrap();
    let admin = locks.admin().unwrap();
    assert_eq!(names(&admin, ListQuery::new().limit(1)).await, ["lock"]);
    guard.release().await.unwrap();
}
