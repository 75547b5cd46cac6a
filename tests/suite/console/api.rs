//! The JSON of the console.

use std::collections::BTreeSet;

use redis::AsyncTypedCommands;
use tower_distributed_lock::console::{self, Console};
use tower_distributed_lock::{LockError, LockMode, RedisStore};

use super::*;
use crate::support::RedisServer;

#[tokio::test]
async fn a_key_that_is_held_is_shown_with_its_holder_its_lease_and_its_token() {
    let locks = locks();
    let page = Page::serve(console::router(&locks)).await;
    let guard = locks
        .lock("k")
        .fenced()
        .label("/orders/{id}")
        .await
        .unwrap();
    let shown = page.json("/api/keys").await;
    assert_eq!(shown["keys_in_use"], 1);
    assert_eq!(shown["held"], 1);
    let row = &rows(&shown)[0];
    assert_eq!(row["key"], "k");
    assert_eq!(row["state"], "held");
    assert_eq!(row["mode"], "reentrant");
    assert_eq!(row["holder"]["kind"], "here");
    let id = row["holder"]["id"].as_str().unwrap();
    assert!(id.starts_with(&locks.id().to_string()), "{id}");
    assert_eq!(row["route"], "/orders/{id}");
    assert_eq!(row["lease_ms"], 30_000);
    assert_eq!(row["renewed"], true);
    assert_eq!(row["renewals"], 0);
    assert_eq!(row["waiters"], 0);
    let left = row["lease_left_ms"].as_u64().unwrap();
    assert!(left > 0 && left <= 30_000, "{left}");
    let token = guard.fencing_token().unwrap().to_string();
    assert_eq!(row["token"], token.as_str());

    guard.release().await.unwrap();
    eventually("the key is gone", SOON, async || {
        page.json("/api/keys").await["keys_in_use"] == 0
    })
    .await;
}

#[tokio::test]
async fn renewals_are_counted() {
    let locks = locks();
    let page = Page::serve(console::router(&locks)).await;
    let lease = tower_distributed_lock::Lease::Renewed(Duration::from_millis(300));
    let guard = locks.lock("k").lease(lease).await.unwrap();
    eventually("two renewals", SOON, async || {
        let shown = page.json("/api/keys").await;
        rows(&shown)[0]["renewals"].as_u64() >= Some(2)
    })
    .await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn waiters_stand_in_their_order_and_the_hand_over_shows_the_next_route() {
    let locks = locks();
    let page = Page::serve(console::router(&locks)).await;
    let guard = locks.lock("k").label("holder").await.unwrap();
    let first = wait(locks.lock("k").label("first"));
    page.waiting("k", 1).await;
    let second = wait(locks.lock("k").label("second"));
    let shown = page.waiting("k", 2).await;
    let routes = shown["waiters"].as_array().unwrap().iter();
    let routes: Vec<_> = routes.map(|waiter| &waiter["route"]).collect();
    assert_eq!(routes, ["first", "second"]);
    let keys = page.json("/api/keys?which=contended").await;
    assert_eq!(rows(&keys)[0]["waiters"], 2);
    assert!(rows(&keys)[0]["longest_wait_ms"].is_u64());

    guard.release().await.unwrap();
    let first = first.await.unwrap();
    let shown = page.waiting("k", 1).await;
    assert_eq!(shown["holds"][0]["route"], "first");
    assert_eq!(shown["waiters"][0]["route"], "second");
    first.release().await.unwrap();
    second.await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn requests_for_permits_are_shown_with_the_one_that_asks_before_those_behind_it() {
    let store = MemoryStore::new();
    let [locks, other] = [LockClient::new(store.clone()), LockClient::new(store)];
    let page = Page::serve(console::router(&locks)).await;
    let guard = other.lock("k").permits(1).await.unwrap();
    let first = wait(locks.lock("k").permits(1).label("first"));
    page.waiting("k", 1).await;
    let keys = page.json("/api/keys").await;
    assert_eq!(rows(&keys)[0]["mode"], "permit");
    let second = wait(locks.lock("k").permits(1).label("second"));
    let shown = page.waiting("k", 2).await;
    for (place, route) in ["first", "second"].into_iter().enumerate() {
        let waiter = &shown["waiters"][place];
        assert_eq!(waiter["mode"], "permit");
        assert_eq!(waiter["route"], route);
        assert_eq!(waiter["asks_store"], place == 0);
    }
    assert_eq!(shown["store"]["limit"], 1);
    eventually("both are counted", SOON, async || {
        let keys = page.json("/api/keys?which=contended").await;
        rows(&keys)[0]["waiters"] == 2
    })
    .await;

    guard.release().await.unwrap();
    first.await.unwrap().release().await.unwrap();
    second.await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_key_that_another_process_or_a_java_service_holds_says_so() {
    let server = RedisServer::start().await;
    let [ours, other] = [(); 2].map(|()| RedisStore::connect(server.url()));
    let ours = LockClient::new(ours.await.unwrap());
    let other = LockClient::new(other.await.unwrap());
    let page = Page::serve(console::router(&ours)).await;
    let guard = other.lock("ours").await.unwrap();
    let mut redis = server.connection().await;
    let java = "0b5a3c1e-0000-4000-8000-000000000666:51";
    redis.hset("java", java, 1).await.unwrap();
    redis.pexpire("java", 3_600_000).await.unwrap();

    let fair = ours.lock("ours").mode(LockMode::Fair).label("fair");
    let waiting = [wait(fair), wait(ours.lock("java"))];
    for key in ["ours", "java"] {
        let shown = page.waiting(key, 1).await;
        assert_eq!(shown["waiters"][0]["asks_store"], true, "{shown}");
        assert_eq!(shown["holds"].as_array().unwrap().len(), 0);
        assert_eq!(shown["store"]["holders"][0]["kind"], key, "{shown}");
    }
    let keys = page.json("/api/keys?sort=key&order=asc").await;
    assert_eq!(names(&keys), ["java", "ours"]);
    assert_eq!(rows(&keys)[0]["holder"]["kind"], "java");
    assert_eq!(rows(&keys)[0]["holder"]["id"], java);
    assert_eq!(rows(&keys)[0]["state"], "waiting");
    assert_eq!(rows(&keys)[1]["holder"]["kind"], "ours");
    assert_eq!(rows(&keys)[1]["route"], "fair");
    assert!(rows(&keys)[1]["lease_left_ms"].is_u64());
    assert_eq!(page.json("/api/keys?which=held").await["matching"], 0);

    for waiting in waiting {
        waiting.abort();
    }
    eventually("none waits", SOON, async || {
        page.json("/api/keys").await["keys_in_use"] == 0
    })
    .await;
    let only_java = page.key("java").await;
    assert_eq!(only_java["store"]["holders"][0]["id"], java);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_process_that_announces_itself_is_named_beside_what_it_holds() {
    let store = MemoryStore::new();
    let page = Page::serve(console::router(&LockClient::new(store.clone()))).await;
    let locks = LockClient::new(store.clone());
    let page_here = Page::serve(console::router(&locks)).await;
    let other = LockClient::builder(store).announce("billing <b>").build();
    let guard = other.lock("k").await.unwrap();
    let process = eventually("it is announced", SOON, async || {
        let shown = page.key("k").await["store"]["holders"][0]["process"].take();
        (!shown.is_null()).then_some(shown)
    })
    .await;
    assert_eq!(process["label"], "billing <b>");
    assert_eq!(process["pid"], std::process::id());
    assert!(
        process["host"]
            .as_str()
            .is_some_and(|host| !host.is_empty())
    );
    let waiter = wait(locks.lock("k"));
    eventually("the row names it", SOON, async || {
        let keys = page_here.json("/api/keys").await;
        (rows(&keys).first()?["holder"]["process"] == process).then_some(())
    })
    .await;
    guard.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn ten_thousand_keys_are_sorted_filtered_and_paged_by_the_server() {
    let locks = locks();
    let page = Page::serve(console::router(&locks)).await;
    let mut guards = Vec::new();
    for hundreds in 0..10 {
        let keys = (0..1000).map(|n| format!("order:{:05}", hundreds * 1000 + n));
        guards.push(locks.lock_all(keys).await.unwrap());
    }
    let first = page.json("/api/keys?sort=key&order=asc&size=100").await;
    assert_eq!(
        (&first["keys_in_use"], &first["pages"]),
        (&10_000.into(), &100.into())
    );
    assert_eq!(names(&first)[0], "order:00000");
    assert_eq!(names(&first)[99], "order:00099");
    let last = page
        .json("/api/keys?sort=key&order=asc&size=100&page=100")
        .await;
    assert_eq!(names(&last)[99], "order:09999");
    // A page beyond the end is the last page.
    let beyond = page
        .json("/api/keys?sort=key&order=asc&size=100&page=999")
        .await;
    assert_eq!(
        (&beyond["page"], names(&beyond)),
        (&100.into(), names(&last))
    );
    let down = page.json("/api/keys?sort=key&order=desc&size=1").await;
    assert_eq!(names(&down), ["order:09999"]);
    let some = page.json("/api/keys?match=042&sort=key&order=asc").await;
    assert_eq!(some["matching"], 120);
    assert_eq!(names(&some)[0], "order:00042");
    // The size of a page is limited.
    let much = page.json("/api/keys?size=1000000").await;
    assert_eq!(rows(&much).len(), 200);
    // The first batch is the oldest; for equal ages the name decides.
    let oldest = page.json("/api/keys?sort=age&order=desc").await;
    assert_eq!(names(&oldest)[0], "order:00000");
    for sort in ["mode", "route", "renewals", "waiters", "token"] {
        let sorted = page.json(&format!("/api/keys?sort={sort}&order=asc")).await;
        assert_eq!(
            names(&sorted)[0],
            "order:00000",
            "of equals, the name decides: {sort}"
        );
    }
    drop(guards);
}

#[tokio::test]
async fn a_question_that_makes_no_sense_is_answered_with_what_does() {
    let page = Page::serve(console::router(&locks())).await;
    for (path, says) in [
        ("/api/keys?sort=color", "sort: key, mode, route"),
        ("/api/keys?order=up", "order: asc or desc"),
        ("/api/keys?which=mine", "which: all, held"),
    ] {
        let answer = page.get(path).await;
        assert_eq!(answer.status(), 400, "{path}");
        assert_eq!(answer.headers()["content-type"], "application/problem+json");
        let problem: Value = answer.json().await.unwrap();
        assert!(problem["detail"].as_str().unwrap().starts_with(says));
    }
    assert_eq!(page.get("/api/key").await.status(), 400);
    assert_eq!(page.get("/api/nothing").await.status(), 404);
}

#[tokio::test]
async fn losses_and_refusals_are_kept_with_their_cause() {
    let locks = locks();
    let page = Page::serve(console::router(&locks)).await;
    let guard = locks.lock("k").label("/k").await.unwrap();
    let refused = locks.lock("k").wait(Duration::ZERO).label("/other").await;
    assert!(matches!(refused, Err(LockError::Busy { .. })));
    assert!(locks.admin().unwrap().force_unlock("k").await.unwrap());
    assert!(matches!(guard.release().await, Err(LockError::Lost)));

    let shown = page.json("/api/events").await;
    assert_eq!((&shown["lost"], &shown["refused"]), (&1.into(), &1.into()));
    let [lost, refused] = &shown["events"].as_array().unwrap()[..] else {
        panic!("{shown}");
    };
    assert_eq!(lost["kind"], "lost");
    assert_eq!(lost["route"], "/k");
    assert_eq!(lost["cause"], "the store did not carry it at its release");
    assert_eq!(refused["outcome"], "contended");
    assert_eq!(refused["route"], "/other");
    assert_eq!(refused["key"], "k");
    assert!(refused["at_ms"].as_u64().unwrap() > 1_700_000_000_000);
}

#[tokio::test]
async fn waits_and_holds_are_counted_by_route_and_mode_and_hot_keys_by_name() {
    let locks = locks();
    let page = Page::serve(console::router(&locks)).await;
    let guard = locks.lock("hot").label("/hot").await.unwrap();
    let waiter = wait(locks.lock("hot").label("/hot"));
    page.waiting("hot", 1).await;
    tokio::time::sleep(Duration::from_millis(60)).await;
    guard.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
    for _ in 0..3 {
        let read = locks.lock("cold").mode(LockMode::Read);
        read.await.unwrap().release().await.unwrap();
    }

    let shown = page.json("/api/durations").await;
    let [hot, none] = &shown["series"].as_array().unwrap()[..] else {
        panic!("{shown}");
    };
    assert_eq!(
        (&hot["route"], &hot["mode"]),
        (&"/hot".into(), &"reentrant".into())
    );
    assert_eq!(
        (&hot["waits"]["count"], &hot["holds"]["count"]),
        (&2.into(), &2.into())
    );
    assert!(hot["waits"]["p99_ms"].as_u64() >= Some(50), "{hot}");
    assert_eq!(
        (&none["route"], &none["mode"]),
        (&"none".into(), &"read".into())
    );
    assert_eq!(none["waits"]["count"], 3);
    let buckets = shown["bounds_ms"].as_array().unwrap().len() + 1;
    assert_eq!(none["holds"]["buckets"].as_array().unwrap().len(), buckets);

    let contended = page.json("/api/contended").await;
    let [only] = &contended["keys"].as_array().unwrap()[..] else {
        panic!("{contended}");
    };
    assert_eq!((&only["key"], &only["waits"]), (&"hot".into(), &1.into()));
    assert!(only["waited_ms"].as_u64() >= Some(50));
}

#[tokio::test]
async fn the_store_is_shown_with_its_promises_its_connections_and_their_latency() {
    let server = RedisServer::start().await;
    let locks = LockClient::new(RedisStore::connect(server.url()).await.unwrap());
    let page = Page::serve(console::router(&locks)).await;
    locks.lock("k").await.unwrap().release().await.unwrap();
    let shown = page.json("/api/store").await;
    let facts = shown["audit"]["facts"].as_array().unwrap().iter();
    let facts: Vec<_> = facts.map(|fact| fact["name"].as_str().unwrap()).collect();
    assert!(
        facts.contains(&"server") && facts.contains(&"replicas"),
        "{facts:?}"
    );
    assert_eq!(shown["audit"]["promises"][0]["id"], "S1");
    assert!(!shown["audit"]["warnings"].as_array().unwrap().is_empty());
    let commands = &shown["connections"][0];
    assert_eq!(commands["carries"], "commands");
    assert!(commands["up"].as_u64() >= Some(1), "{commands}");
    assert!(
        commands["last_minute"]["answers"].as_u64() >= Some(2),
        "{commands}"
    );
    assert!(
        commands["last_minute"]["longest_us"].as_u64() >= Some(1),
        "{commands}"
    );
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

/// The fields of the API, which [the guide](tower_distributed_lock::guide::console) documents. A minor release may add some.
const FIELDS: &[(&str, &str)] = &[
    (
        "/api/keys",
        "held keys keys[].age_ms keys[].handovers keys[].holder keys[].holder.id keys[].holder.kind keys[].holder.process keys[].holder.route keys[].holds keys[].key \
         keys[].lease_left_ms keys[].lease_ms keys[].longest_wait_ms keys[].mode keys[].renewals keys[].renewed \
         keys[].route keys[].shares keys[].state keys[].token keys[].waiters keys_in_use matching page pages size waiters",
    ),
    (
        "/api/key?key=k",
        "holds holds[].age_ms holds[].granted_ms holds[].handovers holds[].id holds[].lease_left_ms holds[].lease_ms \
         holds[].mode holds[].renewals holds[].renewed holds[].route holds[].shares holds[].state holds[].token key store \
         store.error store.holders store.holders[].count store.holders[].id store.holders[].kind \
         store.holders[].lease_left_ms store.holders[].mode store.holders[].process \
         store.holders[].route store.limit store.truncated store.waiters waiters waiters[].asks_store \
         waiters[].mode waiters[].route waiters[].waited_ms waiting",
    ),
    (
        "/api/events",
        "broken events events[].at_ms events[].cause events[].key events[].kind events[].mode events[].number \
         events[].outcome events[].route events[].waited_ms last lost refused",
    ),
    (
        "/api/durations",
        "bounds_ms series series[].holds series[].holds.buckets series[].holds.count series[].holds.mean_ms \
         series[].holds.p50_ms series[].holds.p95_ms series[].holds.p99_ms series[].mode series[].route series[].waits \
         series[].waits.buckets series[].waits.count series[].waits.mean_ms series[].waits.p50_ms series[].waits.p95_ms \
         series[].waits.p99_ms",
    ),
    (
        "/api/contended",
        "keys keys[].key keys[].waited_ms keys[].waits window_ms",
    ),
    (
        "/api/store",
        "audit audit.deployment audit.facts audit.members audit.promises audit.promises[].id audit.promises[].kept \
         audit.promises[].name audit.sentinels audit.warnings audited_ms connections error",
    ),
    (
        "/api/process",
        "client may_break name noted_ms peers pid version",
    ),
];

#[tokio::test]
async fn the_fields_are_those_that_the_guide_documents() {
    let locks = locks();
    let page = Page::serve(console::router(&locks)).await;
    let guard = locks.lock("k").await.unwrap();
    let waiter = wait(locks.lock("k"));
    page.waiting("k", 1).await;
    let _ = locks.lock("k").wait(Duration::ZERO).await;
    waiter.abort();
    eventually("a contended key", SOON, async || {
        !page.json("/api/contended").await["keys"][0].is_null()
    })
    .await;
    let waiter = wait(locks.lock("k"));
    page.waiting("k", 1).await;
    let guide = include_str!("../../../docs/guide/console.md");
    for (path, expected) in FIELDS {
        let mut shown = page.json(path).await;
        // Other tests of this process have connections to Redis.
        if let Some(connections) = shown.get_mut("connections") {
            *connections = Value::Array(Vec::new());
        }
        let mut found = BTreeSet::new();
        fields(&shown, "", &mut found);
        let found: Vec<_> = found.into_iter().collect();
        let expected: Vec<_> = expected.split_whitespace().collect();
        assert_eq!(found, expected, "{path}");
        for field in expected {
            let name = field.rsplit(['.', ']']).next().unwrap_or_default();
            assert!(
                guide.contains(&format!("`{name}`")),
                "the guide misses {name}"
            );
        }
    }
    waiter.abort();
    guard.release().await.unwrap();
}

fn fields(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields_of) => {
            for (name, value) in fields_of {
                let path = match path {
                    "" => name.clone(),
                    _ => format!("{path}.{name}"),
                };
                found.insert(path.clone());
                fields(value, &path, found);
            }
        }
        Value::Array(items) => {
            for item in items {
                if item.is_object() {
                    fields(item, &format!("{path}[]"), found);
                }
            }
        }
        _ => {}
    }
}
