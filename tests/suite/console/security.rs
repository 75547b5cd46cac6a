//! Defence against pages of other origins, hostile names and careless users.

use axum::body::Body;
use http::{Request, StatusCode};
use serde_json::json;
use tower::ServiceExt;
use tower_distributed_lock::{LockMode, RedisStore};
use tower_distributed_lock_console::{self as console, Console};
use tracing::Level;

use super::*;
use crate::support::{LimitedStore, Log, RedisServer};

/// A request to break `k`, from the page itself.
fn from_the_page() -> http::request::Builder {
    Request::post("/api/break")
        .header("host", "localhost")
        .header("sec-fetch-site", "same-origin")
        .header("content-type", "application/json")
}

fn body(key: &str, confirm: &str) -> Body {
    seen(key, confirm, &[])
}

/// The same after the page has shown these holders.
fn seen(key: &str, confirm: &str, holders: &[String]) -> Body {
    let body = json!({ "key": key, "confirm": confirm, "holders": holders });
    Body::from(body.to_string())
}

/// The holders of `k`, as the page shows them.
async fn holders(locks: &LockClient) -> Vec<String> {
    let seen = locks.admin().unwrap().inspect("k").await.unwrap();
    seen.holders.into_iter().map(|holder| holder.id).collect()
}

async fn status(console: &Router, request: Request<Body>) -> StatusCode {
    console.clone().oneshot(request).await.unwrap().status()
}

async fn is_held(locks: &LockClient) -> bool {
    let admin = locks.admin().unwrap();
    admin.inspect("k").await.unwrap().is_held()
}

#[tokio::test]
async fn locks_are_not_broken_unless_that_was_allowed() {
    let locks = locks();
    let guard = locks.lock("k").await.unwrap();
    let console = console::router(&locks);
    let request = from_the_page().body(body("k", "k")).unwrap();
    assert_eq!(status(&console, request).await, 403);
    assert!(is_held(&locks).await);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_foreign_page_cannot_break_a_lock() {
    let locks = locks();
    let guard = locks.lock("k").await.unwrap();
    let console = Console::new(&locks).allow_force_unlock().router();
    let json = ("content-type", "application/json");
    let host = ("host", "localhost");
    for headers in [
        // As browsers send it from another origin.
        &[
            host,
            json,
            ("sec-fetch-site", "cross-site"),
            ("origin", "https://evil.example"),
        ][..],
        &[
            host,
            json,
            ("sec-fetch-site", "same-site"),
            ("origin", "https://a.localhost"),
        ],
        &[host, json, ("origin", "https://evil.example")],
        &[host, json, ("origin", "null")],
        // A form.
        &[
            host,
            ("content-type", "text/plain"),
            ("origin", "https://evil.example"),
        ],
        // A request without its origin.
        &[host, json],
        &[json],
    ] {
        let mut request = Request::post("/api/break");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body("k", "k")).unwrap();
        assert_eq!(status(&console, request).await, 403, "{headers:?}");
    }
    // A form of the page itself is refused as well.
    let form = Request::post("/api/break").header("sec-fetch-site", "same-origin");
    let form = form.header("content-type", "text/plain");
    assert_eq!(
        status(&console, form.body(body("k", "k")).unwrap()).await,
        415
    );
    let get = Request::get("/api/break").body(Body::empty()).unwrap();
    assert_eq!(status(&console, get).await, 405);
    assert!(is_held(&locks).await);

    let old_browser = Request::post("/api/break").header("host", "localhost");
    let old_browser = old_browser.header("origin", "http://localhost");
    let old_browser = old_browser.header("content-type", "application/json");
    let shown = holders(&locks).await;
    let broken = old_browser.body(seen("k", "k", &shown)).unwrap();
    assert_eq!(status(&console, broken).await, 200);
    assert!(guard.release().await.is_err());
}

#[tokio::test]
async fn a_lock_is_not_broken_without_its_exact_name() {
    let locks = locks();
    let guard = locks.lock("k").await.unwrap();
    let console = Console::new(&locks).allow_force_unlock().router();
    for body in [
        body("k", ""),
        body("k", "K"),
        body("k", "k "),
        Body::from("{\"key\": \"k\"}"),
        Body::from("k"),
    ] {
        let request = from_the_page().body(body).unwrap();
        assert_eq!(status(&console, request).await, 400);
    }
    let long = "x".repeat(100_000);
    let request = from_the_page().body(body(&long, &long)).unwrap();
    assert_eq!(status(&console, request).await, 413);
    assert!(is_held(&locks).await);
    guard.release().await.unwrap();
}

/// The user has looked at one holder, and another has come meanwhile.
#[tokio::test]
async fn no_other_holder_is_ended_than_the_one_that_was_shown() {
    let locks = locks();
    let console = Console::new(&locks).allow_force_unlock().router();
    let first = locks.lock("k").await.unwrap();
    let shown = holders(&locks).await;
    first.release().await.unwrap();
    let second = locks.lock("k").await.unwrap();
    for shown in [&shown[..], &[]] {
        let request = from_the_page().body(seen("k", "k", shown)).unwrap();
        assert_eq!(status(&console, request).await, 409);
    }
    second.release().await.unwrap();
}

/// A page of another site points its name at this address: to a browser, both are one origin.
#[tokio::test]
async fn a_request_to_another_name_reads_and_breaks_nothing() {
    let locks = locks();
    let guard = locks.lock("k").await.unwrap();
    let console = Console::new(&locks).allow_force_unlock();
    let console = console.hosts(["locks.example"]).router();
    let shown = holders(&locks).await;
    for (host, expected) in [
        ("evil.example:3003", 421),
        ("127.0.0.1.evil.example", 421),
        ("locks.example.", 421),
        ("127.0.0.1:3003", 200),
        ("[::1]:3003", 200),
        ("localhost:3003", 200),
        ("locks.example", 200),
    ] {
        for path in ["/", "/main.js", "/api/keys", "/api/live"] {
            let request = Request::get(path).header("host", host);
            let request = request.body(Body::empty()).unwrap();
            assert_eq!(status(&console, request).await, expected, "{host}{path}");
        }
        let over_http2 = format!("http://{host}/api/keys");
        let request = Request::get(over_http2).body(Body::empty()).unwrap();
        assert_eq!(status(&console, request).await, expected, "{host}");
    }
    let from_evil = Request::post("/api/break")
        .header("host", "evil.example:3003")
        .header("sec-fetch-site", "same-origin")
        .header("content-type", "application/json");
    let request = from_evil.body(seen("k", "k", &shown)).unwrap();
    assert_eq!(status(&console, request).await, 421);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn refused_breaks_are_one_line_a_minute() {
    let (log, _guard) = Log::at(Level::INFO);
    let console = console::router(&locks());
    for _ in 0..100 {
        let request = from_the_page().body(body("k", "k")).unwrap();
        assert_eq!(status(&console, request).await, 403);
    }
    let lines = log.text();
    assert_eq!(lines.matches("refused to break").count(), 1, "{lines}");
}

#[tokio::test]
async fn a_broken_lock_is_logged_with_the_callers_address_and_the_answer_says_what_was_there() {
    let (log, _guard) = Log::at(Level::INFO);
    let locks = locks();
    let guard = locks.lock("k").await.unwrap();
    let page = Page::serve(Console::new(&locks).allow_force_unlock().router()).await;
    let shown = holders(&locks).await;
    let ask = || {
        let request = reqwest::Client::new().post(format!("{}/api/break", page.url));
        let request = request.header("sec-fetch-site", "same-origin");
        let request = request.header("x-forwarded-for", "203.0.113.9\u{e9}");
        let body = json!({ "key": "k", "confirm": "k", "holders": shown });
        request.json(&body).send()
    };
    let told: Value = ask().await.unwrap().json().await.unwrap();
    assert_eq!(told["broken"], true);
    let holder = &told["was"]["holders"][0];
    assert_eq!(holder["kind"], "here");
    assert_eq!(holder["mode"], "reentrant");
    assert!(guard.release().await.is_err());
    let again: Value = ask().await.unwrap().json().await.unwrap();
    assert_eq!(again["broken"], false);
    assert_eq!(again["was"]["holders"], json!([]));

    let text = log.text();
    assert_eq!(text.matches("a lock was broken").count(), 1, "{text}");
    let line = text.lines().find(|line| line.contains("a lock was broken"));
    let line = line.expect("a line");
    assert!(
        line.contains("WARN") && line.contains("127.0.0.1:"),
        "{line}"
    );
    assert!(line.contains("203.0.113.9"), "{line}");
    assert!(line.contains("holders=1"), "{line}");
    // The log has a digest of the name, and the page has the name.
    assert!(line.contains("key=8254c329"), "{line}");
    let events = eventually("the event", SOON, async || {
        let events = page.json("/api/events").await;
        (events["broken"] == 1).then_some(events)
    });
    let events = events.await;
    let broken = events["events"].as_array().unwrap().iter();
    let broken: Vec<_> = broken.filter(|event| event["kind"] == "broken").collect();
    assert_eq!(broken.len(), 1);
    assert!(broken[0]["cause"].as_str().unwrap().contains("127.0.0.1:"));
}

/// An event has the beginning of such a name.
#[tokio::test]
async fn the_caller_is_known_who_has_broken_a_lock_with_a_long_name() {
    let locks = locks();
    let name = "é".repeat(200);
    let _guard = locks.lock(&*name).await.unwrap();
    let page = Page::serve(Console::new(&locks).allow_force_unlock().router()).await;
    let seen = locks.admin().unwrap().inspect(&*name).await.unwrap();
    let body = json!({ "key": name, "confirm": name, "holders": [seen.holders[0].id] });
    let request = reqwest::Client::new().post(format!("{}/api/break", page.url));
    let request = request.header("sec-fetch-site", "same-origin").json(&body);
    let told: Value = request.send().await.unwrap().json().await.unwrap();
    assert_eq!(told["broken"], true, "{told}");
    let cause = eventually("the event", SOON, async || {
        let events = page.json("/api/events").await;
        let events = events["events"].as_array().unwrap().iter();
        let broken: Vec<_> = events.filter(|event| event["kind"] == "broken").collect();
        broken.first().map(|event| event["cause"].to_string())
    });
    let cause = cause.await;
    assert!(cause.contains("127.0.0.1:"), "{cause}");
}

/// Of so many readers, each inspection shows others.
#[tokio::test]
async fn a_lock_with_more_readers_than_are_shown_can_be_broken() {
    let redis = RedisServer::start().await;
    let store = RedisStore::connect(redis.url()).await.unwrap();
    let locks = LockClient::new(store.clone());
    let mut readers = Vec::new();
    for _ in 0..300 {
        let reader = LockClient::new(store.clone());
        readers.push(reader.lock("k").mode(LockMode::Read).await.unwrap());
    }
    let console = Console::new(&locks).allow_force_unlock().router();
    let shown = holders(&locks).await;
    assert!(shown.len() < readers.len());
    let request = from_the_page().body(seen("k", "k", &shown)).unwrap();
    assert_eq!(status(&console, request).await, 200);
    assert!(!is_held(&locks).await);
}

/// The lock may be broken already: who did it is to be known all the same.
#[tokio::test]
async fn a_caller_that_does_not_wait_for_the_answer_is_logged() {
    let (log, _guard) = Log::at(Level::INFO);
    let delay = Duration::from_millis(100);
    let locks = LockClient::new(LimitedStore::breaking_late(delay));
    let guard = locks.lock("k").await.unwrap();
    let console = Console::new(&locks).allow_force_unlock().router();
    let shown = holders(&locks).await;
    let request = from_the_page().body(seen("k", "k", &shown)).unwrap();
    let answer = tokio::time::timeout(delay / 2, status(&console, request)).await;
    assert!(answer.is_err(), "the caller has gone");
    assert!(guard.release().await.is_err(), "the lock was broken");
    tokio::time::sleep(delay).await;
    assert!(log.text().contains("a lock was broken"), "{}", log.text());
}

#[tokio::test]
async fn every_answer_has_a_policy_without_inline_code() {
    let page = Page::serve(console::router(&locks())).await;
    for path in [
        "",
        "/main.js",
        "/style.css",
        "/api/keys",
        "/api/live",
        "/nothing",
    ] {
        let answer = page.get(path).await;
        let headers = answer.headers();
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("default-src 'none'"), "{path}: {policy}");
        assert!(
            policy.contains("frame-ancestors 'none'"),
            "{path}: {policy}"
        );
        assert!(
            policy.contains("require-trusted-types-for 'script'"),
            "{path}: {policy}"
        );
        for weak in ["unsafe", "data:", "http:", "https:", "*"] {
            assert!(!policy.contains(weak), "{path}: {policy}");
        }
        assert_eq!(headers["x-content-type-options"], "nosniff", "{path}");
        assert_eq!(headers["cache-control"], "no-store", "{path}");
        assert!(
            !headers.contains_key("access-control-allow-origin"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn the_page_names_files_of_its_own_and_has_no_code_inside() {
    let page = Page::serve(console::router(&locks())).await;
    for address in [page.url.clone(), format!("{}/", page.url)] {
        names_files_of_its_own(&address).await;
    }
    let nested = Router::new().nest("/_locks", console::router(&locks()));
    let nested = Page::serve_in(nested).await;
    names_files_of_its_own(&nested.url).await;
    assert_eq!(nested.get("/").await.status(), 404);
    for script in ["main", "dom", "keys", "detail", "history", "store"] {
        let text = page
            .get(&format!("/{script}.js"))
            .await
            .text()
            .await
            .unwrap();
        for markup in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "http://",
            "https://",
        ] {
            let namespace = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!namespace.contains(markup), "{script}.js: {markup}");
        }
    }
}

/// The page at `address` has no code inside, and its files are there.
async fn names_files_of_its_own(address: &str) {
    let html = reqwest::get(address).await.unwrap();
    assert_eq!(html.status(), 200, "{address}");
    let html = html.text().await.unwrap();
    assert!(!html.contains("{base}"));
    let mut files = Vec::new();
    for tag in html.split('<').skip(1) {
        let tag = tag.split('>').next().unwrap();
        assert!(!tag.contains(" on") && !tag.contains("style="), "{tag}");
        assert!(!tag.starts_with("script") || tag.contains(" src="), "{tag}");
        for name in ["src=\"", "href=\""] {
            let file = tag.split(name).nth(1);
            files.extend(file.map(|rest| rest.split('"').next().unwrap().to_owned()));
        }
    }
    files.retain(|file| !file.starts_with('#'));
    assert_eq!(files.len(), 3, "{files:?}");
    let base = reqwest::Url::parse(address).unwrap();
    for file in files {
        let file = reqwest::get(base.join(&file).unwrap()).await.unwrap();
        assert_eq!(file.status(), 200, "{}", file.url());
    }
}

#[tokio::test]
async fn hostile_names_are_strings_of_json() {
    let locks = locks();
    let page = Page::serve(console::router(&locks)).await;
    let mut guards = Vec::new();
    for name in HOSTILE {
        guards.push(locks.lock(name).await.unwrap());
        assert_eq!(page.key(name).await["key"], name);
    }
    let answer = page.get("/api/keys").await;
    assert_eq!(answer.headers()["content-type"], "application/json");
    let text = answer.text().await.unwrap();
    assert!(!text.contains('\u{0}') && !text.contains('\n'));
    let shown: Value = serde_json::from_str(&text).unwrap();
    let mut found = names(&shown);
    found.sort_unstable();
    let mut expected = HOSTILE;
    expected.sort_unstable();
    assert_eq!(found, expected);
}
