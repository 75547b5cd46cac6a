//! The picture of the page for README.md, and its width on a phone.

use super::*;

/// A process with an example of every state, which the picture in the README shows.
#[tokio::test]
async fn nothing_is_wider_than_a_phone_and_the_picture_can_be_made() {
    let server = RedisServer::start().await;
    let connect = async || RedisStore::connect(server.url()).await.unwrap();
    let locks = LockClient::new(connect().await);
    let other = LockClient::builder(connect().await);
    let other = other.announce("warehouse").build();
    let console = Console::new(&locks).process("api-1").allow_force_unlock();
    let console = console.peers([("api-2", "https://api-2.internal/_locks")]);
    let page = Page::serve(console.router()).await;
    let scene = scene(&server, &locks, &other).await;
    let browser = Browser::open(&page.url).await;
    browser.shows("#rows", "Java (Redisson)").await;
    browser.shows("#rows", "another of ours").await;
    let process = format!("warehouse, process {} on ", std::process::id());
    browser.shows("#rows .process", &process).await;
    browser.shows("#store-age", "looked at").await;
    browser.shows("#process", "api-1").await;
    let peer = "return document.querySelector('#peers a').href + document.querySelector('#peers a').innerText";
    let peer = browser.run(peer, vec![]).await;
    assert_eq!(peer, "https://api-2.internal/_locksapi-2");
    browser.shows("#durations", "/orders/{id}").await;
    let chart = "return document.querySelector('#durations svg').ariaLabel";
    let chart = browser.run(chart, vec![]).await;
    assert!(
        chart
            .as_str()
            .is_some_and(|chart| chart.contains(" up to ")),
        "{chart}"
    );
    browser.shows("#contended", "lock:order:42").await;
    browser.shows("#facts", "replicas").await;
    browser.shows("#facts", "S5 confirmed exclusion").await;
    let pictures = std::env::var_os("CONSOLE_PICTURES");
    for (name, width, height, dark) in [
        ("console", 1280, 1180, false),
        ("console-dark", 1280, 1180, true),
        ("console-narrow", 320, 2400, false),
        ("console-phone", 390, 2400, false),
        ("console-phone-dark", 390, 2400, true),
    ] {
        browser.look(width, height, dark).await;
        let wide = "return document.documentElement.scrollWidth";
        let wide = browser.run(wide, vec![]).await;
        assert!(wide.as_u64() <= Some(width), "{name}: {wide} of {width}");
        if let Some(folder) = &pictures {
            tokio::time::sleep(Duration::from_millis(1500)).await;
            let file = std::path::Path::new(folder).join(format!("{name}.png"));
            std::fs::write(file, browser.picture().await).unwrap();
        }
    }
    if let Some(folder) = &pictures {
        browser
            .click("#rows button[aria-label^='lock:order:42:']")
            .await;
        browser.shows("#detail-body .waiters", "/orders").await;
        for (name, width, height, dark) in [
            ("console-detail", 1280, 900, false),
            ("console-detail-phone", 390, 1400, true),
        ] {
            browser.look(width, height, dark).await;
            let file = std::path::Path::new(folder).join(format!("{name}.png"));
            std::fs::write(file, browser.picture().await).unwrap();
        }
    }
    browser.close().await;
    for task in scene.1 {
        task.abort();
    }
}

/// The holds and waiting requests of the picture.
async fn scene(
    server: &RedisServer,
    locks: &LockClient,
    other: &LockClient,
) -> (Vec<LockGuard>, Vec<JoinHandle<LockGuard>>) {
    use redis::AsyncTypedCommands;
    for n in 0..240 {
        let work = Duration::from_micros(200 + (n * n) % 9000);
        let (route, mode) = match n % 3 {
            0 => ("/orders/{id}", LockMode::Write),
            1 => ("/orders/{id}", LockMode::Read),
            _ => ("/accounts/{id}/transfers", LockMode::Write),
        };
        let guard = locks
            .lock(format!("lock:warm:{}", n % 7))
            .mode(mode)
            .label(route);
        let guard = guard.await.unwrap();
        tokio::time::sleep(work).await;
        guard.release().await.unwrap();
    }
    let java = "0b5a3c1e-0000-4000-8000-000000000666:51";
    let mut redis = server.connection().await;
    redis.hset("lock:report:daily", java, 1).await.unwrap();
    redis.pexpire("lock:report:daily", 3_600_000).await.unwrap();
    let mut held = Vec::new();
    for (key, mode, route) in [
        ("lock:order:42", LockMode::Write, "/orders/{id}"),
        ("lock:order:43", LockMode::Write, "/orders/{id}"),
        (
            "lock:account:7",
            LockMode::Write,
            "/accounts/{id}/transfers",
        ),
        ("lock:catalogue", LockMode::Read, "/catalogue"),
    ] {
        let guard = locks.lock(key).mode(mode).label(route);
        let lease = Lease::Renewed(Duration::from_secs(9));
        let guard = match mode.is_exclusive() {
            true => guard.lease(lease).fenced(),
            false => guard.lease(lease),
        };
        held.push(guard.await.unwrap());
    }
    held.push(
        other
            .lock("lock:stock:7")
            .mode(LockMode::Fair)
            .await
            .unwrap(),
    );
    let mut waiting = Vec::new();
    for (key, mode, route) in [
        ("lock:order:42", LockMode::Write, "/orders/{id}/refund"),
        ("lock:order:42", LockMode::Write, "/orders/{id}"),
        ("lock:order:42", LockMode::Read, "/orders/{id}"),
        ("lock:stock:7", LockMode::Fair, "/stock/{id}"),
        ("lock:report:daily", LockMode::Reentrant, "nightly report"),
    ] {
        // As long as the pictures take.
        let request = locks.lock(key).mode(mode).label(route);
        let request = request.wait(Duration::from_secs(3600));
        waiting.push(tokio::spawn(async move { request.await.unwrap() }));
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    for key in ["lock:order:42", "lock:account:7", "lock:order:42"] {
        let refused = locks.lock(key).mode(LockMode::Write).label("/orders/{id}");
        let refused = refused.wait(Duration::from_millis(300)).await;
        assert!(refused.is_err());
    }
    let lost = locks
        .lock("lock:invoice:1001")
        .label("/invoices/{id}")
        .await
        .unwrap();
    let admin = locks.admin().unwrap();
    assert!(admin.force_unlock("lock:invoice:1001").await.unwrap());
    assert!(lost.release().await.is_err());
    (held, waiting)
}
