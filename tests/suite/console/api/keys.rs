//! Lists of keys, and the keys in them.

use super::*;
use crate::support::LimitedStore;

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
    for sort in ["mode", "route", "waiters", "token"] {
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
        (
            "/api/keys?sort=color",
            "sort: unknown variant `color`, expected one of `key`, `mode`, `route`",
        ),
        (
            "/api/keys?order=up",
            "order: unknown variant `up`, expected `asc` or `desc`",
        ),
        (
            "/api/keys?which=mine",
            "which: unknown variant `mine`, expected one of `all`, `held`",
        ),
        ("/api/keys?page=last", "page: invalid digit"),
        ("/api/key", "missing field `key`"),
    ] {
        let answer = page.get(path).await;
        assert_eq!(answer.status(), 400, "{path}");
        assert_eq!(answer.headers()["content-type"], "application/problem+json");
        let problem: Value = answer.json().await.unwrap();
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.starts_with(says), "{detail}");
    }
    assert_eq!(page.get("/api/nothing").await.status(), 404);
}

/// A page asks for the holders of its keys one by one, so a store in trouble must not be asked for all of them each second.
#[tokio::test]
async fn a_slow_store_is_asked_for_holders_less_often() {
    const KEYS: usize = 24;
    let store = LimitedStore::inspecting_late(Duration::from_millis(300));
    let [locks, other] = [(); 2].map(|()| LockClient::new(store.clone()));
    let page = Page::serve(console::router(&locks)).await;
    let mut held = Vec::new();
    for n in 0..KEYS {
        let key = format!("k{n}");
        held.push(other.lock(&*key).await.unwrap());
        drop(wait(locks.lock(&*key)));
    }
    eventually("all of them wait", SOON, async || {
        locks.snapshot().count() == KEYS
    })
    .await;
    let known = |shown: &Value| {
        let kinds = rows(shown)
            .iter()
            .map(|row| row["holder"]["kind"] == "ours");
        kinds.filter(|known| *known).count()
    };
    let first = known(&page.json("/api/keys").await);
    assert!(first < KEYS, "a viewer does not wait for all of them");
    let asked = store.inspections();
    for _ in 0..4 {
        // Longer than a survey is shown.
        tokio::time::sleep(Duration::from_millis(450)).await;
        let shown = page.json("/api/keys").await;
        assert_eq!(known(&shown), first, "what is known is shown");
    }
    assert_eq!(store.inspections(), asked, "it had five seconds of rest");
}
