//! The page in a real browser.

mod scene;

use serde_json::json;
use tower_distributed_lock::{Lease, LockMode, RedisStore};
use tower_distributed_lock_console::{self as console, Console};

use super::*;
use crate::support::{Browser, RedisServer};

impl Browser {
    /// The text of an element; null if there is no such element.
    async fn text(&self, css: &str) -> Value {
        let script = "return document.querySelector(arguments[0])?.innerText ?? null";
        self.run(script, vec![css.into()]).await
    }

    async fn shows(&self, css: &str, text: &str) {
        eventually(&format!("{css} shows {text:?}"), SOON, async || {
            let found = self.text(css).await;
            match found.as_str() {
                Some(found) if found.contains(text) => Ok(()),
                _ => Err(found),
            }
        })
        .await;
    }

    async fn has(&self, css: &str, count: usize) {
        eventually(&format!("{count} times {css}"), SOON, async || {
            let script = "return document.querySelectorAll(arguments[0]).length";
            let found = self.run(script, vec![css.into()]).await;
            (found == count).then_some(()).ok_or(found)
        })
        .await;
    }
}

#[tokio::test]
async fn a_lock_appears_and_its_waiter_and_goes() {
    let locks = locks();
    let page = Page::serve(console::router(&locks)).await;
    let browser = Browser::open(&page.url).await;
    browser.shows("#link", "Live").await;
    browser.shows("#no-rows", "holds no lock").await;

    let guard = locks.lock("order:42").label("/orders/{id}").await.unwrap();
    browser.shows("#rows", "order:42").await;
    browser.shows("#rows tr", "this process").await;
    browser.shows("#rows tr", "/orders/{id}").await;
    browser.shows("#sum-held", "1").await;

    let waiter = wait(locks.lock("order:42").label("/orders/{id}/refund"));
    browser.shows("#sum-waiters", "1").await;
    browser.click("#rows button.name").await;
    browser.shows("#detail-title", "order:42").await;
    browser
        .shows("#detail-body .waiters", "/orders/{id}/refund")
        .await;
    browser.press("#detail-close", "\u{e00c}").await; // Escape
    browser.has("dialog[open]", 0).await;

    guard.release().await.unwrap();
    browser.shows("#rows tr", "/orders/{id}/refund").await;
    waiter.await.unwrap().release().await.unwrap();
    browser.has("#rows tr", 0).await;
    browser.shows("#no-rows", "holds no lock").await;
    browser.close().await;
}

#[tokio::test]
async fn a_person_breaks_a_lock_by_typing_its_name() {
    let locks = locks();
    let console = Console::new(&locks).allow_force_unlock();
    let page = Page::serve(console.router()).await;
    let guard = locks.lock("report").await.unwrap();
    let browser = Browser::open(&page.url).await;
    // A key in the store, whether or not this process uses it.
    browser.fill("#inspect-key", "report").await;
    browser.press("#inspect-key", "\u{e007}").await; // Enter
    browser.shows("#detail-body .holders", "this process").await;
    browser.shows("#break h3", "Break this lock").await;
    let enabled = "return !document.querySelector('#break-button').disabled";
    assert_eq!(browser.run(enabled, vec![]).await, false);
    browser.fill("#break-name", "repor").await;
    assert_eq!(browser.run(enabled, vec![]).await, false);
    browser.fill("#break-name", "t").await;
    assert_eq!(browser.run(enabled, vec![]).await, true);
    browser.click("#break-button").await;
    let held_by = format!("Broken. It was held by {}", locks.id());
    browser.shows("#broken", &held_by).await;
    assert!(guard.release().await.is_err());
    browser.shows("#events", "report").await;
    browser.close().await;
}

#[tokio::test]
async fn without_permission_the_page_offers_no_breaking() {
    let locks = locks();
    let page = Page::serve(console::router(&locks)).await;
    let _guard = locks.lock("report").await.unwrap();
    let browser = Browser::open(&format!("{}#key=report", page.url)).await;
    browser.shows("#detail-body .holders", "this process").await;
    let hidden = "return document.querySelector('#break').hidden";
    assert_eq!(browser.run(hidden, vec![]).await, true);
    browser.close().await;
}

#[tokio::test]
async fn hostile_names_are_text_and_what_cannot_be_seen_is_marked() {
    let locks = locks();
    let console = Console::new(&locks).allow_force_unlock();
    let page = Page::serve(console.process("hostile").router()).await;
    let mut guards = Vec::new();
    for name in HOSTILE {
        guards.push(locks.lock(name).label("<b>bold</b>").await.unwrap());
    }
    // A refusal and a contended key put the names into the other parts of the page.
    for name in HOSTILE {
        let wait = Duration::from_millis(5);
        assert!(locks.lock(name).wait(wait).await.is_err());
    }
    let browser = Browser::open(&page.url).await;
    browser.has("#rows tr", HOSTILE.len()).await;
    browser.has("#contended li", HOSTILE.len()).await;
    browser.has("#events li", HOSTILE.len()).await;
    browser.has("main b, main img, main script", 0).await;
    browser.shows("#rows", HOSTILE[0]).await;
    browser
        .shows("#rows", "order\\u{0}\\u{7}\\u{1b}[31m\\u{d}\\u{a}42")
        .await;
    browser.shows("#rows", "invoice\\u{202e}gpj.exe").await;
    browser.shows("#rows", "a\\u{200b}b\\u{feff}c").await;
    let title = browser.run("return document.title", vec![]).await;
    assert_eq!(title, "Locks: hostile");

    // Each key opens, and a name with odd characters can be typed as it is shown.
    for place in 1..=HOSTILE.len() {
        browser
            .click(&format!("#rows tr:nth-child({place}) button.name"))
            .await;
        browser.shows("#detail-body .holders", "this process").await;
        browser.press("#detail-close", "\u{e00c}").await;
        browser.has("dialog[open]", 0).await;
    }
    browser.click("#rows button[aria-label*='202e']").await;
    browser.shows("#detail-body .holders", "this process").await;
    browser.fill("#break-name", "invoice\\u{202e}gpj.exe").await;
    browser.click("#break-button").await;
    browser.shows("#broken", "Broken.").await;
    browser.has("#rows tr", HOSTILE.len()).await;
    assert!(!guards.remove(4).release().await.is_ok_and(|()| true));
    browser.close().await;
}

#[tokio::test]
async fn ten_thousand_keys_stay_usable() {
    let locks = locks();
    let page = Page::serve(console::router(&locks)).await;
    let mut guards = Vec::new();
    for thousands in 0..10 {
        let keys = (0..1000).map(|n| format!("order:{:05}", thousands * 1000 + n));
        guards.push(locks.lock_all(keys).await.unwrap());
    }
    let browser = Browser::open(&page.url).await;
    browser.shows("#keys-count", "10,000 in use").await;
    browser.has("#rows tr", 50).await;
    browser.click("th button[data-sort=key]").await;
    browser.shows("#rows tr:first-child", "order:00000").await;
    browser.shows("th[aria-sort=ascending]", "Key").await;
    browser.click("th button[data-sort=key]").await;
    browser.shows("#rows tr:first-child", "order:09999").await;
    browser.click("[data-page=next]").await;
    browser.shows("#page-of", "page 2 of 200").await;
    browser.shows("#rows tr:first-child", "order:09949").await;
    browser.fill("#match", "0424").await;
    browser.shows("#keys-count", "11 of 10,000").await;
    browser.shows("#rows tr:last-child", "order:00424").await;
    // The address contains the whole state: a reload shows the same.
    browser.reload().await;
    browser.shows("#keys-count", "11 of 10,000").await;
    browser.close().await;
}

#[tokio::test]
async fn the_keyboard_reaches_everything_and_everything_has_a_name() {
    let locks = locks();
    let page = Page::serve(console::router(&locks)).await;
    let _guards = locks.lock_all(["a", "b", "c"]).await.unwrap();
    let browser = Browser::open(&page.url).await;
    browser.has("#rows tr", 3).await;
    let focused = "return document.activeElement.innerText || document.activeElement.id";
    browser.press("body", "\u{e004}").await; // Tab
    assert_eq!(browser.run(focused, vec![]).await, "Skip to the keys");
    let focus = "document.querySelector('#rows tr:nth-child(2) button').focus()";
    browser.run(focus, vec![]).await;
    let chosen = browser.run(focused, vec![]).await;
    // The focus stays on the key while the rows are updated.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(browser.run(focused, vec![]).await, chosen);
    browser.press_here("\u{e007}").await;
    browser.has("dialog[open]", 1).await;
    browser.press_here("\u{e00c}").await;
    browser.has("dialog[open]", 0).await;
    assert_eq!(browser.run(focused, vec![]).await, chosen);

    let nameless = r"
        const named = (node) => node.labels?.length || node.ariaLabel || node.innerText?.trim();
        const nodes = document.querySelectorAll('button, input, select, a, [role=img]');
        return Array.from(nodes).filter((node) => !named(node) && !node.getAttribute('aria-label')).map((node) => node.outerHTML);
    ";
    assert_eq!(browser.run(nameless, vec![]).await, json!([]));
    let heads =
        "return Array.from(document.querySelectorAll('th')).filter((th) => !th.scope).length";
    assert_eq!(browser.run(heads, vec![]).await, 0);
    browser.close().await;
}

#[tokio::test]
async fn a_paused_page_does_not_change_and_a_lost_connection_is_shown() {
    let locks = locks();
    let page = Page::serve(console::router(&locks)).await;
    let browser = Browser::open(&page.url).await;
    browser.shows("#link", "Live").await;
    browser.click("#pause").await;
    browser.shows("#link", "Paused").await;
    let _guard = locks.lock("later").await.unwrap();
    tokio::time::sleep(Duration::from_millis(2500)).await;
    browser.has("#rows tr", 0).await;
    // The result is shown once.
    browser.click("th button[data-sort=key]").await;
    browser.has("#rows tr", 1).await;
    browser.shows("#link", "Paused").await;
    browser.click("#pause").await;
    browser.shows("#link", "Live").await;
    locks.shutdown(SOON).await.unwrap();
    drop(page);
    browser.shows("#link", "No connection").await;
}
