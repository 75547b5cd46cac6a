//! The JSON of the console.

mod fields;
mod keys;

use std::collections::BTreeSet;

use redis::AsyncTypedCommands;
use tower_distributed_lock::{LockError, LockMode, RedisStore};
use tower_distributed_lock_console::{self as console, Console};

use super::*;
use crate::support::RedisServer;

#[tokio::test]
async fn losses_and_refusals_are_kept_with_their_cause() {
    let locks = locks();
    let page = Page::serve(console::router(&locks)).await;
    let guard = locks.lock("k").label("/k").await.unwrap();
    let refused = locks.lock("k").wait(Duration::ZERO).label("/other").await;
    assert!(matches!(refused, Err(LockError::Busy { .. })));
    assert!(locks.admin().unwrap().force_unlock("k").await.unwrap());
    assert!(matches!(guard.release().await, Err(LockError::Lost)));

    let shown = eventually("both", SOON, async || {
        let shown = page.json("/api/events").await;
        (shown["last"] == 3).then_some(shown)
    });
    let shown = shown.await;
    for count in ["lost", "refused", "broken"] {
        assert_eq!(shown[count], 1, "{count}");
    }
    let [lost, broken, refused] = &shown["events"].as_array().unwrap()[..] else {
        panic!("{shown}");
    };
    assert_eq!(lost["kind"], "lost");
    assert_eq!(lost["route"], "/k");
    assert_eq!(lost["cause"], "gone");
    assert_eq!(broken["kind"], "broken");
    assert_eq!(refused["outcome"], "contended");
    assert_eq!(refused["route"], "/other");
    assert_eq!(refused["key"], "k");
    assert!(refused["at_ms"].as_u64().unwrap() > 1_700_000_000_000);
}

#[tokio::test]
async fn a_page_without_rights_names_them() {
    let redis = RedisServer::start().await;
    let address = redis.user("locks", &RedisStore::acl_rules(["lock:"])).await;
    let locks = LockClient::new(RedisStore::connect(address).await.unwrap());
    let page = Page::serve(console::router(&locks)).await;
    let shown = page.json("/api/key?key=other").await;
    let error = shown["store"]["error"].as_str().unwrap();
    assert!(
        error.contains("`.admin()`") && error.contains("NoPerm"),
        "{error}"
    );
}

#[tokio::test]
async fn waits_are_counted_by_route_and_mode_and_hot_keys_by_name() {
    let locks = locks();
    let page = Page::serve(console::router(&locks)).await;
    let guard = locks.lock("hot").label("/hot").await.unwrap();
    let waiter = wait(locks.lock("hot").label("/hot"));
    page.waiting("hot", 1).await;
    tokio::time::sleep(Duration::from_millis(60)).await;
    guard.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
    // A lock that is free at once is no wait.
    let read = locks.lock("cold").mode(LockMode::Read);
    read.await.unwrap().release().await.unwrap();

    let shown = eventually("the wait", SOON, async || {
        let shown = page.json("/api/durations").await;
        (shown["series"][0]["waits"]["count"] == 1).then_some(shown)
    });
    let shown = shown.await;
    let [hot] = &shown["series"].as_array().unwrap()[..] else {
        panic!("{shown}");
    };
    assert_eq!(
        (&hot["route"], &hot["mode"]),
        (&"/hot".into(), &"reentrant".into())
    );
    assert!(hot["waits"]["p99_ms"].as_u64() >= Some(50), "{hot}");
    let buckets = shown["bounds_ms"].as_array().unwrap().len() + 1;
    assert_eq!(hot["waits"]["buckets"].as_array().unwrap().len(), buckets);

    let contended = page.json("/api/contended").await;
    let [only] = &contended["keys"].as_array().unwrap()[..] else {
        panic!("{contended}");
    };
    assert_eq!((&only["key"], &only["waits"]), (&"hot".into(), &1.into()));
    assert!(only["waited_ms"].as_u64() >= Some(50));
}

#[tokio::test]
async fn the_store_is_shown_with_its_promises_and_the_time_of_its_answer() {
    let server = RedisServer::start().await;
    let locks = LockClient::new(RedisStore::connect(server.url()).await.unwrap());
    let page = Page::serve(console::router(&locks)).await;
    locks.lock("k").await.unwrap().release().await.unwrap();
    let shown = page.json("/api/store").await;
    let facts = shown["audit"]["facts"].as_array().unwrap().iter();
    let facts: Vec<_> = facts.map(|fact| fact[0].as_str().unwrap()).collect();
    assert!(
        facts.contains(&"server") && facts.contains(&"replicas"),
        "{facts:?}"
    );
    assert_eq!(shown["audit"]["promises"][0]["id"], "S1");
    assert!(!shown["audit"]["warnings"].as_array().unwrap().is_empty());
    assert!(shown["answered_us"].as_u64() >= Some(1), "{shown}");
}

#[tokio::test]
async fn a_process_says_its_name_and_links_the_others() {
    let console = Console::new(&locks()).process("api-1");
    let console = console.peers([("api-2", "https://api-2.internal/_locks")]);
    let page = Page::serve(console.router()).await;
    let shown = page.json("/api/process").await;
    assert_eq!(shown["name"], "api-1");
    assert_eq!(shown["may_break"], false);
    assert_eq!(
        shown["peers"][0]["address"],
        "https://api-2.internal/_locks"
    );
}

#[test]
#[should_panic(expected = "the address of a peer begins with")]
fn a_peer_that_is_no_address_is_refused() {
    let _ = Console::new(&locks()).peers([("evil", "javascript:alert(1)")]);
}
